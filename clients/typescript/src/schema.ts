// Generated from the service's OpenAPI document by generate.mjs: do not edit.
export type paths = Record<string, never>;
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * AliasRequest
         * @description The pool that an alias points at.
         */
        AliasRequest: {
            /**
             * Expected
             * @description The pool that the alias should point at now; another one is a conflict. By default any.
             */
            expected?: string | null;
            /** To */
            to: string;
        };
        /**
         * Alive
         * @description The process answers requests.
         */
        Alive: {
            /**
             * Alive
             * @default true
             */
            alive?: boolean;
        };
        /**
         * Avoided
         * @description An utterance to avoid.
         */
        Avoided: {
            /**
             * Speaker
             * @description The speaker who would say it; by default the responder.
             */
            speaker?: string | null;
            /** Text */
            text: string;
            /**
             * Threshold
             * @description Candidates whose reachability of it (eq. 4 of C3L) is this or more are rejected.
             */
            threshold: number;
        };
        /**
         * CandidateChange
         * @description Fields of a candidate to change. Those that are left out stay as they are.
         */
        CandidateChange: {
            /**
             * Add Examples
             * @description Examples to add to those of the candidate, which others may change at the same time.
             * @default []
             */
            add_examples?: string[];
            /**
             * Body
             * @description The longer text that is returned with it; null removes it.
             */
            body?: string | null;
            /**
             * Examples
             * @description Replaces the examples that were uploaded, not those that feedback has added.
             */
            examples?: string[] | null;
            /**
             * Group
             * @description The group; null makes the candidate an answer of its own.
             */
            group?: string | null;
            /**
             * Metadata
             * @description Replaces all metadata.
             */
            metadata?: {
                [key: string]: unknown;
            } | null;
            /**
             * Remove Examples
             * @description Examples to remove; those that the candidate lacks are ignored.
             * @default []
             */
            remove_examples?: string[];
            /** Text */
            text?: string | null;
        };
        /**
         * CandidatePage
         * @description A page of candidates, sorted by id; those of a candidate store in its order.
         */
        CandidatePage: {
            /** Candidates */
            candidates: components["schemas"]["PoolCandidate"][];
            /**
             * Cursor
             * @description The cursor of the next page; null after the last one. A page before the last may be empty.
             */
            cursor: string | null;
            /**
             * Matching
             * @description Number of the candidates on all pages; null if they are in a candidate store.
             */
            matching: number | null;
            /**
             * Warnings
             * @description What is probably wrong with the request, the session or the pool, although there is an answer; left out if nothing is.
             * @default []
             */
            warnings?: string[];
        };
        /**
         * ChatAnswer
         * @description The answer to a chat request, if it comes from Turnwise and is not streamed.
         */
        ChatAnswer: {
            /**
             * Choices
             * @description Best candidate first.
             */
            choices: components["schemas"]["ChatChoice"][];
            /**
             * Created
             * @description Unix seconds.
             */
            created: number;
            /** Id */
            id: string;
            /**
             * Model
             * @description The `model` of the request.
             */
            model: string;
            /**
             * Object
             * @default chat.completion
             * @constant
             */
            object?: "chat.completion";
            turnwise: components["schemas"]["ChatDetails"];
            /**
             * @default {
             *       "completion_tokens": 0,
             *       "prompt_tokens": 0,
             *       "total_tokens": 0
             *     }
             */
            usage?: components["schemas"]["ChatUsage"];
        };
        /**
         * ChatChoice
         * @description A candidate, or the text of a fallback.
         */
        ChatChoice: {
            /**
             * Finish Reason
             * @default stop
             * @constant
             */
            finish_reason?: "stop";
            /** Index */
            index: number;
            /** Logprobs */
            logprobs?: null;
            message: components["schemas"]["ChatReply"];
        };
        /**
         * ChatDetails
         * @description What a turn would answer.
         */
        ChatDetails: {
            /**
             * Abstained
             * @description Whether there are no candidates because the confidence was too low.
             */
            abstained: boolean;
            /**
             * Candidates
             * @description The candidates of the choices, in the same order; empty if the answer is a fallback.
             */
            candidates: components["schemas"]["Selected"][];
            /**
             * Confidence
             * @description Probability that the first candidate is a right one; null if that cannot be known.
             */
            confidence: number | null;
            pool: components["schemas"]["PoolVersion"] | null;
            /**
             * Reranked
             * @description True if the model's own re-ranker ordered the first candidates; else left out.
             * @default false
             */
            reranked?: boolean;
            /**
             * Truncated
             * @description True if the newest message is longer than what the model reads of it, its beginning and its
             *     end; else left out.
             * @default false
             */
            truncated?: boolean;
            /**
             * Turn
             * @description Number of the newest turn of the session; null without a session.
             */
            turn: number | null;
            /**
             * Warnings
             * @description What is probably wrong with the request, the session or the pool, although there is an answer; left out if nothing is.
             * @default []
             */
            warnings?: string[];
        };
        /**
         * ChatError
         * @description An error as the clients of OpenAI read it.
         */
        ChatError: {
            /**
             * Code
             * @description The last part of the problem's `type`.
             */
            code: string;
            /**
             * Message
             * @description The `detail` of the problem.
             */
            message: string;
            /**
             * Param
             * @description The first invalid field.
             */
            param: string | null;
            /**
             * Type
             * @description `invalid_request_error`, or `server_error` from status 500 on.
             */
            type: string;
        };
        /**
         * ChatMessage
         * @description A message. Those of the user and the assistant are the context; others are not read.
         */
        ChatMessage: {
            /** Content */
            content?: string | components["schemas"]["ContentPart"][] | null;
            /**
             * Role
             * @enum {string}
             */
            role: "system" | "developer" | "user" | "assistant" | "tool" | "function";
        } & {
            [key: string]: unknown;
        };
        /**
         * ChatModel
         * @description A pool or an alias, which clients name as their model.
         */
        ChatModel: {
            /**
             * Created
             * @description Unix seconds.
             */
            created: number;
            /** Id */
            id: string;
            /**
             * Object
             * @default model
             * @constant
             */
            object?: "model";
            /**
             * Owned By
             * @default turnwise
             * @constant
             */
            owned_by?: "turnwise";
        };
        /**
         * ChatModelList
         * @description The pools and aliases of a namespace.
         */
        ChatModelList: {
            /** Data */
            data: components["schemas"]["ChatModel"][];
            /**
             * Object
             * @default list
             * @constant
             */
            object?: "list";
        };
        /**
         * ChatOptions
         * @description Options of Turnwise, in the field `turnwise` of a request.
         */
        ChatOptions: {
            /**
             * Min Confidence
             * @description Fall back if the confidence is lower; by default the pool's, or 0.
             */
            min_confidence?: number | null;
            /**
             * Session Id
             * @description The session that keeps the messages as turns; by default nothing is kept.
             */
            session_id?: string | null;
            /**
             * Slots
             * @description Values for slots, in addition to those of the session.
             * @default {}
             */
            slots?: {
                [key: string]: string;
            };
            /**
             * Where
             * @description A filter: only candidates whose metadata match it are returned.
             */
            where?: components["schemas"]["Filter"] | null;
        };
        /**
         * ChatReply
         * @description The message of a choice.
         */
        ChatReply: {
            /** Content */
            content: string;
            /** Refusal */
            refusal?: null;
            /**
             * Role
             * @default assistant
             * @constant
             */
            role?: "assistant";
        };
        /**
         * ChatRequest
         * @description Messages to reply to. Turnwise ignores fields such as `temperature` and `tools`.
         */
        ChatRequest: {
            /**
             * Messages
             * @description The conversation, oldest message first.
             */
            messages: components["schemas"]["ChatMessage"][];
            /**
             * Model
             * @description The pool to select from, or an alias.
             */
            model: string;
            /**
             * N
             * @description Number of candidates to return as choices, 1 by default; fewer if the pool has fewer.
             */
            n?: number | null;
            /**
             * Stream
             * @description Whether to answer with server-sent events.
             */
            stream?: boolean | null;
            stream_options?: components["schemas"]["StreamOptions"] | null;
            /**
             * @default {
             *       "slots": {}
             *     }
             */
            turnwise?: components["schemas"]["ChatOptions"];
        } & {
            [key: string]: unknown;
        };
        /**
         * ChatUsage
         * @description Clients of OpenAI need this object.
         */
        ChatUsage: {
            /**
             * Completion Tokens
             * @default 0
             */
            completion_tokens?: number;
            /**
             * Prompt Tokens
             * @description Always 0: Turnwise does not count tokens.
             * @default 0
             */
            prompt_tokens?: number;
            /**
             * Total Tokens
             * @default 0
             */
            total_tokens?: number;
        };
        /**
         * ContentPart
         * @description A part of a message. Only texts are read.
         */
        ContentPart: {
            /** Text */
            text?: string | null;
            /** Type */
            type: string;
        } & {
            [key: string]: unknown;
        };
        /**
         * Document
         * @description A document as an object.
         */
        Document: {
            /** Text */
            text: string;
        };
        /**
         * Edited
         * @description The result of an edit.
         */
        Edited: {
            /** Size */
            size: number;
            /** Unchanged */
            unchanged: number;
            /** Upserted */
            upserted: number;
            /** Version */
            version: number;
            /** Warnings */
            warnings?: string[];
        };
        /**
         * Feedback
         * @description An event that a session keeps.
         */
        Feedback: {
            /** Candidate */
            candidate: string;
            /**
             * Event
             * @enum {string}
             */
            event: "shown" | "chosen" | "edited" | "rejected";
            /**
             * Learned
             * @description Whether the examples of the candidate now have the utterance before the choice, or a near
             *     copy of it; left out unless the feedback should teach.
             */
            learned?: boolean | null;
            /**
             * Rank
             * @description The candidate's place among those that the turn offered, from 1.
             */
            rank: number;
            /** Text */
            text: string | null;
            /**
             * Turn
             * @description The turn that offered the candidate.
             */
            turn: number;
        };
        /**
         * FeedbackRequest
         * @description An event on a candidate that a turn offered.
         */
        FeedbackRequest: {
            /** Candidate */
            candidate: string;
            /**
             * Event
             * @description `shown` to whoever chooses, `chosen` as the reply, `edited` into the reply, or `rejected` as
             *     wrong. A turn without `shown` counts as having shown all that it offered.
             * @enum {string}
             */
            event: "shown" | "chosen" | "edited" | "rejected";
            /**
             * Learn
             * @description Whether the utterance before the choice becomes a learned example of the candidate; only with
             *     `chosen` and `edited`. True needs the scope `pools`. By default the setting of the pool.
             */
            learn?: boolean | null;
            /**
             * Text
             * @description The reply after the edit; only with `edited`.
             */
            text?: string | null;
        };
        /**
         * FieldError
         * @description A field with an invalid value.
         */
        FieldError: {
            /**
             * Loc
             * @description Path of the field: `("candidates", 3, "text")`; in an answer, after "body" or "query".
             */
            loc: (string | number)[];
            /** Msg */
            msg: string;
        };
        /**
         * FileEdited
         * @description The result of an upload of a file.
         */
        FileEdited: {
            /** Notes */
            notes: string[];
            /** Size */
            size: number;
            /** Unchanged */
            unchanged: number;
            /** Upserted */
            upserted: number;
            /** Version */
            version: number;
            /** Warnings */
            warnings?: string[];
        };
        /**
         * Filter
         * @description Metadata match if every field holds. A dot leads into nested objects; a list holds a condition if one of its items does.
         */
        Filter: {
            all?: components["schemas"]["Filter"][];
            any?: components["schemas"]["Filter"][];
            none?: components["schemas"]["Filter"][];
        } & {
            [key: string]: (string | number | boolean | null) | components["schemas"]["FilterCondition"];
        };
        /**
         * FilterCondition
         * @description A value holds all of these conditions. The bounds of a range are all numbers or all strings.
         */
        FilterCondition: {
            exists?: boolean;
            gt?: string | number;
            gte?: string | number;
            in?: (string | number | boolean | null)[];
            lt?: string | number;
            lte?: string | number;
            not?: string | number | boolean | null;
        };
        /**
         * GivenCandidate
         * @description A candidate that the request gives.
         */
        GivenCandidate: {
            /** Id */
            id?: string | null;
            /**
             * Speaker
             * @description The speaker who would say it; by default the responder.
             */
            speaker?: string | null;
            /** Text */
            text: string;
        };
        /**
         * GivenTurn
         * @description A turn of a context that the request gives.
         */
        GivenTurn: {
            /** Speaker */
            speaker: string;
            /** Text */
            text: string;
        };
        /**
         * Goal
         * @description A goal: an utterance that the conversation should lead to.
         */
        Goal: {
            /**
             * Speaker
             * @description The speaker who should say it; by default the responder.
             */
            speaker?: string | null;
            /** Text */
            text: string;
            /**
             * Weight
             * @description Factor of its reachability in the score; a negative weight leads away from the goal.
             * @default 1
             */
            weight?: number;
        };
        JsonValue: unknown;
        /**
         * LearnedExample
         * @description An example that feedback added to a candidate.
         */
        LearnedExample: {
            /**
             * At
             * @description Unix seconds.
             */
            at: number;
            /**
             * Candidate
             * @description Id of the candidate.
             */
            candidate: string;
            /** Text */
            text: string;
        };
        /**
         * LearnedList
         * @description Learned examples, newest first.
         */
        LearnedList: {
            /** Learned */
            learned: components["schemas"]["LearnedExample"][];
        };
        /**
         * LearnedText
         * @description An example that feedback added.
         */
        LearnedText: {
            /**
             * At
             * @description Unix seconds.
             */
            at: number;
            /** Text */
            text: string;
        };
        /**
         * Matched
         * @description The example by which a search found a candidate, and the reply that the candidate follows.
         */
        Matched: {
            /**
             * After
             * @description The id or the group of the responder's last reply, if the candidate names it in `after`.
             */
            after?: string | null;
            /**
             * Example
             * @description The example of the candidate that is most similar to the newest utterance. Left out if it was
             *     learned and the caller lacks the scope `pools`.
             */
            example?: string | null;
            /**
             * Learned
             * @description True if feedback added the example; else left out.
             * @default false
             */
            learned?: boolean;
        };
        /**
         * ModelFacts
         * @description The loaded model and its runtime.
         */
        ModelFacts: {
            /**
             * Aggregation
             * @description Default aggregation, from the model card.
             */
            aggregation: string;
            /**
             * Device
             * @description Type of the device, such as `cpu` or `cuda`; `remote` with an encoder tier.
             */
            device?: string | null;
            /** Dimension */
            dimension: number;
            /** Fingerprint */
            fingerprint: string;
            /** Kind */
            kind: string;
            /** Name */
            name: string;
            /**
             * Runtime
             * @description Library, arithmetic and device that run the model.
             */
            runtime: string;
            /**
             * Threads
             * @description Threads that compute a batch on a CPU; null on other devices.
             */
            threads?: number | null;
        };
        /**
         * PlanAnswer
         * @description Orders by decreasing score.
         */
        PlanAnswer: {
            /** Method */
            method: string;
            /** Model */
            model: string;
            /** Next Goal */
            next_goal: string;
            /**
             * Optimal
             * @description Always true: no other order scores higher.
             */
            optimal: boolean;
            /** Orders */
            orders: components["schemas"]["PlannedOrder"][];
            /** Timings Ms */
            timings_ms: {
                [key: string]: number;
            };
        };
        /**
         * PlanGoal
         * @description A goal to put in order.
         */
        PlanGoal: {
            /**
             * Id
             * @description By default its index in the request, from 0.
             */
            id?: string | null;
            /**
             * Speaker
             * @description The speaker who should say it; by default the responder.
             */
            speaker?: string | null;
            /** Text */
            text: string;
        };
        /**
         * PlanRequest
         * @description Goals to put into the order in which a dialogue can reach them.
         */
        PlanRequest: {
            /** Context */
            context?: components["schemas"]["GivenTurn"][] | null;
            /** Goals */
            goals: components["schemas"]["PlanGoal"][];
            /**
             * Method
             * @description `chain` orders the goals by how well each leads to the next; it reads no context. `greedy`
             *     orders them by their pull, half the mean cosine of the last two utterances with the goal.
             *     `chain_curved` uses both. `iec` (the same as `chain`), `gc` and `iec_cu` are these methods as
             *     CCL publishes them, where the pull is the sum of the cosines of the whole context.
             * @default chain
             * @enum {string}
             */
            method?: "chain" | "chain_curved" | "greedy" | "iec" | "iec_cu" | "gc";
            /** Session Id */
            session_id?: string | null;
            /**
             * Top
             * @description Number of orders to return.
             * @default 1
             */
            top?: number;
        } & (unknown & ({
            /** @enum {unknown} */
            method?: "chain" | "iec";
        } | {
            session_id: unknown;
        } | {
            context: unknown[];
        }));
        /**
         * PlannedOrder
         * @description Ids of the goals, in the order in which to pursue them.
         */
        PlannedOrder: {
            /** Order */
            order: string[];
            /** Score */
            score: number;
        };
        /**
         * PoolCalibration
         * @description How confidences in a pool are corrected: the logit becomes slope · logit + offset.
         */
        PoolCalibration: {
            /** Offset */
            offset: number;
            /** Slope */
            slope: number;
        };
        /**
         * PoolCandidate
         * @description A candidate as the pool holds it.
         */
        PoolCandidate: {
            /**
             * Body
             * @description The longer text that is returned with it, and not encoded.
             */
            body?: string | null;
            /**
             * Examples
             * @description Utterances of another speaker after which it fits.
             */
            examples: string[];
            /**
             * Group
             * @description The answer that it is a wording of; null for an answer of its own.
             */
            group: string | null;
            /** Id */
            id: string;
            /**
             * Learned
             * @description Examples that feedback added, oldest first; null if the caller lacks the scope `pools`.
             */
            learned: components["schemas"]["LearnedText"][] | null;
            /** Metadata */
            metadata: {
                [key: string]: unknown;
            };
            /** Text */
            text: string;
        };
        /**
         * PoolInfo
         * @description A pool as this replica holds it.
         */
        PoolInfo: {
            /**
             * Aliases
             * @description Other names of the pool.
             */
            aliases?: string[];
            /**
             * Bytes
             * @description Bytes of memory that vectors and codes take.
             */
            bytes: number;
            calibration?: components["schemas"]["PoolCalibration"] | null;
            /**
             * Created At
             * @description Unix seconds.
             */
            created_at: number;
            /** Description */
            description: string;
            /**
             * Encoder
             * @enum {string}
             */
            encoder: "default";
            /** Exact */
            exact: boolean;
            /**
             * Fallback
             * @description The answer of `/v1/chat/completions` where a turn would offer no candidate.
             */
            fallback?: string | null;
            /**
             * Fingerprint
             * @description Fingerprint of the model whose vectors are searched.
             */
            fingerprint: string;
            /**
             * Index
             * @description `flat` compares all vectors, `ivf` those in the nearest lists, `hnsw` those on paths of a
             *     graph, in the candidate store.
             * @enum {string}
             */
            index: "flat" | "ivf" | "hnsw";
            /**
             * Learn
             * @description `chosen` if candidates also learn from feedback that leaves out its own `learn`.
             */
            learn?: "chosen" | null;
            /**
             * Min Confidence
             * @description Turns abstain below this confidence, unless they name another one.
             */
            min_confidence?: number | null;
            /** Model */
            model: string;
            /** Name */
            name: string;
            /**
             * Progress
             * @description Share of the pool that is loaded or indexed so far; null if neither is in progress.
             */
            progress: number | null;
            /**
             * Recall At 10
             * @description Measured share of the exact top 10 that the index finds; null if the search is exact, or
             *     was not measured yet.
             */
            recall_at_10: number | null;
            /** Size */
            size: number;
            /**
             * State
             * @description `loading` from Redis, `encoding` for this model, or `damaged`: Redis has lost a part.
             *
             *     `unread`: not in this replica's memory; the first request that names the pool reads it.
             *     `other_model`: its candidate store holds vectors of another model than this replica's.
             * @enum {string}
             */
            state: "ready" | "loading" | "encoding" | "damaged" | "unread" | "other_model";
            /**
             * Store
             * @description Where its candidates are.
             * @enum {string}
             */
            store: "local" | "milvus" | "qdrant";
            /** Version */
            version: number;
            /**
             * Width
             * @description Candidates that `hnsw` looks at in a search (`ef`); null for the other indexes.
             */
            width?: number | null;
        };
        /**
         * PoolList
         * @description The pools of a namespace, by name.
         */
        PoolList: {
            /** Pools */
            pools: components["schemas"]["PoolInfo"][];
        };
        /**
         * PoolRequest
         * @description Settings of a pool. Those that are left out stay as they are.
         */
        PoolRequest: {
            /** @description As `turnwise calibrate` fits it; null removes it. */
            calibration?: components["schemas"]["PoolCalibration"] | null;
            /**
             * Description
             * @default
             */
            description?: string;
            /**
             * Encoder
             * @description The encoder of its candidates; it never changes. By default `default`.
             */
            encoder?: "default" | null;
            /**
             * Fallback
             * @description The answer of `/v1/chat/completions` where a turn would offer no candidate; null removes
             *     it.
             */
            fallback?: string | null;
            /**
             * Learn
             * @description `chosen`: feedback `chosen` and `edited` adds the utterance before the choice to the learned
             *     examples of the candidate. Null: only feedback that says so.
             */
            learn?: "chosen" | null;
            /**
             * Min Confidence
             * @description Turns abstain below this confidence, unless they name another one; null removes it.
             */
            min_confidence?: number | null;
            /**
             * Store
             * @description Where its candidates are: `local`, the default, or the engine of `TURNWISE_STORE_URL`.
             */
            store?: ("local" | "milvus" | "qdrant") | null;
        };
        /**
         * PoolVersion
         * @description The version of a pool that an answer used.
         */
        PoolVersion: {
            /** Name */
            name: string;
            /** Version */
            version: number;
        };
        /**
         * Problem
         * @description An error answer (RFC 9457).
         */
        Problem: {
            /**
             * Detail
             * @description Explanation of this occurrence, for people.
             * @example body.text: is required
             */
            detail: string;
            /**
             * @description The same error for the clients of OpenAI; only from the routes that they call.
             * @default null
             */
            error?: components["schemas"]["ChatError"] | null;
            /**
             * Errors
             * @description Each invalid field, by its path: `["body", "candidates", 3, "text"]`.
             * @default []
             */
            errors?: components["schemas"]["FieldError"][];
            /**
             * Request Id
             * @description The request's `X-Request-ID`, to find the request in logs.
             * @default null
             */
            request_id?: string | null;
            /**
             * Status
             * @example 422
             */
            status: number;
            /**
             * Title
             * @example Invalid request
             */
            title: string;
            /**
             * Type
             * @description Identifies the kind of problem. Programs should compare this, not the title.
             * @example urn:turnwise:problem:invalid-request
             */
            type: string;
        };
        /**
         * RankAnswer
         * @description Candidates by decreasing score; equal scores keep the order of the request.
         *
         *     With diversity, in the order in which they were chosen.
         */
        RankAnswer: {
            /**
             * Confidence
             * @description Probability that the first candidate of a pool is a right one. Null unless the model's own
             *     aggregation ranks the pool, alone or with the model's own re-ranker.
             */
            confidence?: number | null;
            /**
             * Estimated
             * @description True if the reachability of the goals comes from estimated vectors of the candidates, whose
             *     order is good and whose numbers are not exact; else left out.
             * @default false
             */
            estimated?: boolean;
            /** Model */
            model: string;
            pool: components["schemas"]["PoolVersion"] | null;
            /** Ranking */
            ranking: components["schemas"]["Ranked"][];
            /** Rejected */
            rejected: components["schemas"]["Rejected"][];
            /**
             * Reranked
             * @description True if `auto` ordered the first candidates by the model's own re-ranker; else left out.
             * @default false
             */
            reranked?: boolean;
            /** Timings Ms */
            timings_ms: {
                [key: string]: number;
            };
            /**
             * Warnings
             * @description What is probably wrong with the request, the session or the pool, although there is an answer; left out if nothing is.
             * @default []
             */
            warnings?: string[];
        };
        /**
         * RankRequest
         * @description Candidates to rank after a context, or toward goals.
         */
        RankRequest: {
            /**
             * Aggregation
             * @description `mean` sums all rows, `last_rows` the newest; `max_sim` scores a short list by MaxSim.
             */
            aggregation?: ("mean" | "last_rows" | "max_sim") | null;
            /**
             * Avoid
             * @default []
             */
            avoid?: components["schemas"]["Avoided"][];
            /** Candidates */
            candidates?: (string | components["schemas"]["GivenCandidate"])[] | null;
            /** Context */
            context?: components["schemas"]["GivenTurn"][] | null;
            /**
             * Diversity
             * @description How much candidates of the pool must differ from each other, as for a turn.
             * @default 0
             */
            diversity?: number;
            /**
             * Explain
             * @description Whether to return each candidate's `fit` and each utterance's contribution to it.
             * @default false
             */
            explain?: boolean;
            /**
             * Fit Weight
             * @description With goals: weight of the next-utterance score, which is added to the reachability. By
             *     default 0.5 for a pool, and 0 for `candidates`.
             */
            fit_weight?: number | null;
            /**
             * Goals
             * @default []
             */
            goals?: components["schemas"]["Goal"][];
            /**
             * Last Rows
             * @description Number of rows that `last_rows` sums.
             */
            last_rows?: number | null;
            /**
             * Pool
             * @description A pool, instead of `candidates`: its candidates with the best next-utterance scores.
             */
            pool?: string | null;
            /**
             * Repeat
             * @description Which replies that the responder has said may be ranked: `last` leaves out those of its last
             *     utterance, false those of the whole session, `near` also replies close to these, true none.
             * @default true
             */
            repeat?: boolean | ("last" | "near");
            /**
             * Rerank
             * @description The re-ranker that gives the next-utterance scores, instead of the encoder. `auto` acts as
             *     for a turn on the candidates of a pool, and not at all with goals or given candidates.
             * @default auto
             */
            rerank?: "auto" | null;
            /** Session Id */
            session_id?: string | null;
            /**
             * Slots
             * @description Values for slots of the pool's candidates, in addition to those of the session. Candidates
             *     with other slots are not offered.
             * @default {}
             */
            slots?: {
                [key: string]: string;
            };
            /**
             * Top K
             * @description Number of candidates to return; by default all.
             */
            top_k?: number | null;
            /**
             * Where
             * @description A filter: only candidates of the pool whose metadata match it are ranked.
             */
            where?: components["schemas"]["Filter"] | null;
            /**
             * Wordings
             * @description Whether to return the best wording of each group of the pool, or `all` of them.
             * @default best
             * @enum {string}
             */
            wordings?: "best" | "all";
        } & (({
            session_id: unknown;
        } | {
            context: unknown;
        }) & ({
            candidates: unknown;
        } | {
            pool: unknown;
        }) & ({
            context?: unknown;
        } | {
            goals: unknown;
            pool?: null;
        }) & ({
            pool: unknown;
        } | {
            /** @constant */
            diversity?: 0;
            /** @constant */
            repeat?: true;
            slots?: unknown;
            where?: null | components["schemas"]["Filter"];
        }));
        /**
         * Ranked
         * @description A candidate and the parts of its score.
         */
        Ranked: {
            /**
             * Body
             * @description The body of a candidate of the pool.
             */
            body?: string | null;
            /**
             * Contributions
             * @description One for each utterance of the context, oldest first; they add up to `fit`.
             */
            contributions?: number[] | null;
            /**
             * Fit
             * @description Next-utterance score; null if the context is empty, or nothing in the request needs it.
             */
            fit: number | null;
            /**
             * Goals
             * @description Reachability of each goal (eq. 4 of C3L).
             */
            goals: number[];
            /**
             * Group
             * @description The answer that a candidate of the pool is a wording of.
             */
            group?: string | null;
            /** Id */
            id: string | null;
            /**
             * Index
             * @description Its place among the candidates of the request, or of the pool's short list, from 0.
             */
            index: number;
            /**
             * @description The example that found a candidate of the pool, where that says more than its text, and the
             *     reply that it follows.
             */
            matched?: components["schemas"]["Matched"] | null;
            /**
             * Metadata
             * @description The metadata of a candidate of the pool.
             */
            metadata?: {
                [key: string]: unknown;
            } | null;
            /** Score */
            score: number;
            /**
             * Template
             * @description The text of a candidate of the pool as it is there, if slots or braces changed it.
             */
            template?: string | null;
            /** Text */
            text: string;
        };
        /**
         * Ready
         * @description Every check passed.
         */
        Ready: {
            /** Checks */
            checks: {
                [key: string]: boolean;
            };
            /** Ready */
            ready: boolean;
            /**
             * Warnings
             * @description What is wrong although the service can serve, such as pools that Redis lost.
             * @default []
             */
            warnings?: string[];
        };
        /**
         * Rejected
         * @description A candidate that is rejected because it leads to an utterance to avoid.
         */
        Rejected: {
            /**
             * Avoid
             * @description Place of the utterance in the request's `avoid`, from 0.
             */
            avoid: number;
            /** Id */
            id: string | null;
            /** Index */
            index: number;
            /** Reachability */
            reachability: number;
            /** Reason */
            reason: string;
            /** Text */
            text: string;
        };
        /**
         * Relevance
         * @description A document and its score.
         */
        Relevance: {
            document?: components["schemas"]["Document"] | null;
            /**
             * Index
             * @description Its place among the documents of the request, from 0.
             */
            index: number;
            /**
             * Relevance Score
             * @description A cross-encoder gives a probability. Without one it is the encoder's score, a cosine.
             */
            relevance_score: number;
        };
        /**
         * RemovalRequest
         * @description Ids of candidates to remove.
         */
        RemovalRequest: {
            /** Ids */
            ids: string[];
        };
        /**
         * Removed
         * @description The result of a removal of many candidates.
         */
        Removed: {
            /** Missing */
            missing: number;
            /** Removed */
            removed: number;
            /** Size */
            size: number;
            /** Version */
            version: number;
        };
        /**
         * RerankAnswer
         * @description Documents by decreasing score; equal scores keep the order of the request.
         *
         *     Blank documents come last.
         */
        RerankAnswer: {
            /**
             * Id
             * @description The request's `X-Request-ID`.
             */
            id: string;
            /**
             * Model
             * @description The model that scored: the cross-encoder, or without one the encoder.
             */
            model: string;
            /** Results */
            results: components["schemas"]["Relevance"][];
            /**
             * @default {
             *       "total_tokens": 0
             *     }
             */
            usage?: components["schemas"]["Usage"];
        };
        /**
         * RerankRequest
         * @description Documents to order by how well they follow a query.
         */
        RerankRequest: {
            /** Documents */
            documents: (string | components["schemas"]["Document"])[];
            /**
             * Model
             * @description Ignored: the service has one model for this.
             */
            model?: string | null;
            /** Query */
            query: string;
            /**
             * Return Documents
             * @description Whether to return the text of each document; by default no.
             */
            return_documents?: boolean | null;
            /**
             * Top N
             * @description Number of documents to return; by default all.
             */
            top_n?: number | null;
        };
        /**
         * ScoreMatrix
         * @description The score matrix: a line for each utterance, a column for each candidate.
         */
        ScoreMatrix: {
            /** Ids */
            ids: string[];
            pool: components["schemas"]["PoolVersion"];
            /** Scores */
            scores: number[][];
            /** Session Id */
            session_id: string;
            /**
             * Turns
             * @description Number of the last turn of each utterance.
             */
            turns: number[];
        };
        /**
         * SearchAnswer
         * @description Candidates by decreasing score.
         */
        SearchAnswer: {
            /** Candidates */
            candidates: components["schemas"]["Selected"][];
            /**
             * Warnings
             * @description What is probably wrong with the request, the session or the pool, although there is an answer; left out if nothing is.
             * @default []
             */
            warnings?: string[];
        };
        /**
         * SearchRequest
         * @description A text to find replies for.
         */
        SearchRequest: {
            /**
             * Slots
             * @description Values for slots. Candidates with other slots are not returned.
             * @default {}
             */
            slots?: {
                [key: string]: string;
            };
            /** Text */
            text: string;
            /**
             * Top K
             * @description Number of candidates to return.
             * @default 5
             */
            top_k?: number;
            /**
             * Where
             * @description A filter: only candidates whose metadata match it are returned.
             */
            where?: components["schemas"]["Filter"] | null;
        };
        /**
         * Selected
         * @description A selected candidate of a pool.
         */
        Selected: {
            /** Body */
            body?: string | null;
            /**
             * Contributions
             * @description One for each utterance of the context, oldest first; they add up to the score.
             */
            contributions?: number[] | null;
            /**
             * Group
             * @description The answer that it is a wording of.
             */
            group?: string | null;
            /** Id */
            id: string;
            /**
             * @description The example that found the candidate, if that says more for it than its text does; and the
             *     reply that it follows.
             */
            matched?: components["schemas"]["Matched"] | null;
            /** Metadata */
            metadata: {
                [key: string]: unknown;
            };
            /** Score */
            score: number;
            /**
             * Template
             * @description The text as the pool has it, if slots or braces changed it.
             */
            template?: string | null;
            /** Text */
            text: string;
        };
        /**
         * SessionRequest
         * @description Settings of a session. Those that are left out stay as they are.
         */
        SessionRequest: {
            /**
             * Responder
             * @description The speaker who will say the candidates; it cannot change after the first turn.
             * @default bot
             */
            responder?: string;
            /**
             * Slots
             * @description Values for the slots of candidates, for all turns; null removes them.
             */
            slots?: {
                [key: string]: string;
            } | null;
            /**
             * Where
             * @description A filter for all turns, in addition to the filter of a turn; null removes it.
             */
            where?: components["schemas"]["Filter"] | null;
        };
        /**
         * SessionsDeleted
         * @description The result of one request of a deletion.
         */
        SessionsDeleted: {
            /**
             * Cursor
             * @description The cursor of the next request; null if all sessions are deleted.
             */
            cursor: string | null;
            /**
             * Deleted
             * @description Number of sessions that this request deleted.
             */
            deleted: number;
            /**
             * Learned
             * @description Number of learned examples that the last request removed, if it was asked to.
             */
            learned?: number | null;
        };
        /**
         * SessionsPage
         * @description Ids of sessions, in no order.
         */
        SessionsPage: {
            /**
             * Cursor
             * @description The cursor of the next page; null after the last one. A page before the last may be empty.
             */
            cursor: string | null;
            /** Ids */
            ids: string[];
        };
        /**
         * StreamOptions
         * @description Options of a stream.
         */
        StreamOptions: {
            /**
             * Include Usage
             * @default false
             */
            include_usage?: boolean;
        } & {
            [key: string]: unknown;
        };
        /**
         * Transcript
         * @description A session's turns.
         */
        Transcript: {
            /**
             * Expires At
             * @description Unix seconds.
             */
            expires_at: number;
            /**
             * Feedback
             * @description The events, sorted by turn and rank.
             * @default []
             */
            feedback?: components["schemas"]["Feedback"][];
            /**
             * Model
             * @description Fingerprint of the model whose vectors are stored. The `model` of a turn is the name.
             */
            model: string;
            /** Responder */
            responder: string;
            /** Session Id */
            session_id: string;
            /**
             * Slots
             * @description The values for slots; left out if there are none.
             * @default {}
             */
            slots?: {
                [key: string]: string;
            };
            /** Transcript */
            transcript: components["schemas"]["TranscriptTurn"][];
            /** Turns */
            turns: number;
            /**
             * Where
             * @description The filter of its turns.
             */
            where?: components["schemas"]["Filter"] | null;
        };
        /**
         * TranscriptTurn
         * @description A turn of the transcript.
         */
        TranscriptTurn: {
            /**
             * At
             * @description Unix seconds.
             */
            at: number;
            /**
             * Candidate
             * @description The candidate that the responder said: the turn names it, or feedback before it chose it.
             */
            candidate?: string | null;
            /** Speaker */
            speaker: string;
            /** Text */
            text: string;
            /** Turn */
            turn: number;
        };
        /**
         * TurnAnswer
         * @description The number of the turn, and the best candidates.
         */
        TurnAnswer: {
            /**
             * Abstained
             * @description Whether there are no candidates because the confidence was too low.
             * @default false
             */
            abstained?: boolean;
            /** Candidates */
            candidates: components["schemas"]["Selected"][];
            /**
             * Confidence
             * @description Probability that the first candidate is a right one; null if that cannot be known.
             */
            confidence?: number | null;
            /** Model */
            model: string;
            /** @description Null if no candidates were selected. */
            pool: components["schemas"]["PoolVersion"] | null;
            /**
             * Replayed
             * @description Whether this is the stored answer to an earlier request with the same Idempotency-Key.
             * @default false
             */
            replayed?: boolean;
            /**
             * Reranked
             * @description True if `auto` ordered the first candidates by the model's own re-ranker; else left out.
             * @default false
             */
            reranked?: boolean;
            /** Session Id */
            session_id: string;
            /**
             * Timings Ms
             * @description Milliseconds: encode, state, retrieve, rerank, total.
             */
            timings_ms: {
                [key: string]: number;
            };
            /**
             * Truncated
             * @description True if the newest utterance is longer than what the model reads of it, its beginning and its
             *     end; else left out. The transcript has all of it.
             * @default false
             */
            truncated?: boolean;
            /**
             * Turn
             * @description Number of this turn, from 1; null for a preview.
             */
            turn: number | null;
            /**
             * Warning
             * @deprecated
             * @description The first of `warnings`.
             */
            warning?: string | null;
            /**
             * Warnings
             * @description What is probably wrong with the request, the session or the pool, although there is an answer; left out if nothing is.
             * @default []
             */
            warnings?: string[];
        };
        /**
         * TurnRequest
         * @description A turn, and options of the selection after it.
         */
        TurnRequest: {
            /**
             * Aggregation
             * @description `mean` sums all rows, `last_rows` the newest; `max_sim` scores a short list by MaxSim.
             */
            aggregation?: ("mean" | "last_rows" | "max_sim") | null;
            /**
             * Candidate
             * @description The candidate of the pool that the responder said. Only the responder may name one.
             */
            candidate?: string | null;
            /**
             * Commit
             * @description False for a preview: the answer that this turn would get, without adding it to the session.
             *     A preview ignores `Idempotency-Key`.
             * @default true
             */
            commit?: boolean;
            /**
             * Diversity
             * @description How much candidates must differ from each other: 0 orders them by score alone, 1 by their
             *     difference alone (maximal marginal relevance).
             * @default 0
             */
            diversity?: number;
            /**
             * Exclude
             * @description Ids of candidates that must not be returned.
             * @default []
             */
            exclude?: string[];
            /**
             * Expected Turn
             * @description The number that this turn must get. If it would get another, the answer is 409.
             */
            expected_turn?: number | null;
            /**
             * Explain
             * @description Whether to return each utterance's contribution to each candidate's score.
             * @default false
             */
            explain?: boolean;
            /**
             * Last Rows
             * @description Number of rows that `last_rows` sums.
             */
            last_rows?: number | null;
            /**
             * Min Confidence
             * @description Return no candidates if the confidence is lower; by default the pool's, or 0.
             */
            min_confidence?: number | null;
            /**
             * Pool
             * @description The pool to select from, and of the candidate that was said.
             * @default default
             */
            pool?: string;
            /**
             * Repeat
             * @description Which replies that the responder has said may be offered: `last` leaves out those of its last
             *     utterance, false those of the whole session, `near` also replies close to these, true none.
             * @default last
             */
            repeat?: boolean | ("last" | "near");
            /**
             * Rerank
             * @description With `auto` the model's own re-ranker, if it has one, orders the first candidates where the
             *     first is not sure; a name orders the whole short list; with null nothing is re-ranked.
             * @default auto
             */
            rerank?: "auto" | null;
            /**
             * Respond
             * @description Whether to return candidates; by default yes, unless the responder speaks.
             */
            respond?: boolean | null;
            /**
             * Slots
             * @description Values for slots, in addition to those of the session. Candidates with other slots are not
             *     offered.
             * @default {}
             */
            slots?: {
                [key: string]: string;
            };
            /** Speaker */
            speaker: string;
            /**
             * Text
             * @description What was said; by default the text of the candidate.
             */
            text?: string | null;
            /**
             * Top K
             * @description Number of candidates to return.
             * @default 5
             */
            top_k?: number;
            /**
             * Where
             * @description A filter: only candidates whose metadata match it are returned.
             */
            where?: components["schemas"]["Filter"] | null;
            /**
             * Wordings
             * @description Whether to return the best wording of each group, or `all` of them.
             * @default best
             * @enum {string}
             */
            wordings?: "best" | "all";
        } | {
            text: unknown;
        } | {
            candidate: unknown;
        };
        /**
         * Undone
         * @description The session after its last turn was removed.
         */
        Undone: {
            removed: components["schemas"]["TranscriptTurn"];
            /** Session Id */
            session_id: string;
            /** Turn */
            turn: number;
        };
        /**
         * Unlearned
         * @description The result of removing learned examples.
         */
        Unlearned: {
            /** Removed */
            removed: number;
            /** Version */
            version: number;
        };
        /**
         * Usage
         * @description Some clients need this object.
         */
        Usage: {
            /**
             * Total Tokens
             * @description Always 0: Turnwise does not count tokens.
             * @default 0
             */
            total_tokens?: number;
        };
        /**
         * Version
         * @description The running release, its model and its limits.
         */
        Version: {
            /** Limits */
            limits: {
                [key: string]: number;
            };
            model: components["schemas"]["ModelFacts"];
            /** Python */
            python: string;
            /** Version */
            version: string;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export type operations = Record<string, never>;

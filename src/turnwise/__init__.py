"""Online response selection for conversations.

`turnwise.models` is the science, `turnwise.service` the service and its client. Both folders stand
at the top of the repository, and this package links to them.
"""

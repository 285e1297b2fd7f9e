"""HTTP around the routes: middleware, bodies, uploads, problems, headers and the documentation."""

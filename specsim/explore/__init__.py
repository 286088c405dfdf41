"""`specsim explore`: a page of this machine that predicts while its settings are changed.

    fields      the options of predict as fields of a form, and what they say
    page        the page itself; explore.js, explore.css beside it
    app         predictions as what the page shows, routes (starlette), the token, the server

Needs the extra `specsim-llm[explore]` (starlette, uvicorn, plotly). Importing this package imports
nothing; import the module you need.
"""

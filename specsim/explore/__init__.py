"""`specsim explore`: a page of this machine that predicts while its settings are changed.

    fields      the options of predict as fields of a form, and what they say
    answers     predictions as what the page shows: markup, figures, tables to paste
    page        the page itself; explore.js, explore.css beside it
    app         routes (starlette), the token, one prediction at a time
    server      uvicorn on 127.0.0.1, the browser

Needs the extra `specsim-llm[explore]` (starlette, uvicorn, plotly). Importing this package imports
nothing; import the module you need.
"""

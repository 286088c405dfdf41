"""L8: what results say, and how: takes results, computes nothing but words and places.

A kind of result has one module (`predictions`, `tuning`, ...): from the result's JSON document
(`doc.Doc`, just computed or read back from a file by `saved`) it makes a `blocks.Section` of lines,
tables, notes, commands and charts. `text` writes a section for a terminal, `html.page` for a page
or a notebook; `kinds` names the modules by the kind in a document.

A new figure of a result is a key in its `to_dict` and a column (`columns`) in the module of its
kind; a new kind is a module and a line in `kinds.SECTIONS`. What the JSON does not hold (titles of
GPU and engine, where an acceptance is from) live results put beside it under the key `live`.
"""

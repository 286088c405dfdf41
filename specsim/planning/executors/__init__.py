"""Where the tasks of a sweep run: this machine, a Dask cluster or a Ray cluster, one interface.

    with open_executor("local", workers=2) as executor:
        for done in executor.run(function, jobs):
            ...

`function` is a module-level function of one plain dict that returns a plain dict; whoever runs it
imports it by name. Results come in the order in which they end. What they contain does not depend
on the executor: a task takes its randomness from its own payload and shares nothing.
"""

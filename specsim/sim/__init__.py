"""L6: the discrete-event simulation of a serving engine under load.

    load  ->  gateway and router  ->  replicas (scheduler, cache, step loop)  ->  RequestRecords

simpy carries what happens outside an engine (arrivals, failures, deadlines, users) and at most
one event per engine step. Inside, `step.run` goes through whole stretches of steps.

    build       what is simulated: a deployment as `config` (rules, memory, speculation)
    run         one run of a load (`loads`, `humans`, `arrivals`) on a `cluster` of `replica`s
    core        the state of a replica by name; `state` makes it, `slots` puts requests in and out
    step        the step loop, with `schedule`, `kv`, `joining`, `preempt`, `price`, `streams` and
                `adapt`: plain on numpy rows (`rows`), or as machine code (`compiled`) translated to
                C (`to_c`) with loops (`rows_loop`), over the same state as C structures
                (`structs`)
    surface     step times asked of the latency model, as `tables` that `price` reads
    summary     what came out: `figures` from `records` and `steplog`; `compare` with speculation
                and without
"""

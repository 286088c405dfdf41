"""L6: the discrete-event simulation of a serving engine under load.

    load  ->  gateway and router  ->  replicas (scheduler, cache, step loop)  ->  RequestRecords

simpy carries what happens outside an engine (arrivals, failures, deadlines, users) and at most
one event per engine step. Inside, `core` runs whole stretches of steps on plain arrays.
"""

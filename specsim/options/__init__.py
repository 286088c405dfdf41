"""The options of all commands and of the Python functions, each declared once.

An option is a field of a model; what it is called, what it means and what it may be stand with it:

    class BatchLimitsOptions(OptionSet):
        max_num_seqs: int | None = opt(
            None, help="Request slots.", ge=1, le=10_000_000
        )

Small models hold what belongs together (`groups`); those of a command are joined from them, in the
order of `--help`, and stand with their family: `prediction` (predict), `tuning` (tune), `analytic`
(explain, crossover, pareto, matrix, compare), `serving` (simulate, policies), `sizing` (capacity,
fleet, sweep), `listing` (models, gpus, import, config, report), `measured` (diagnose, watch,
validate, calibrate), `local` (generate, serve, measure, train-head); a model costs a millisecond
where its family is imported. What two options say together and must not is a `model_validator` of
the group that has both. `PredictOptions` are those of the Python function, `PredictCommand` has
besides them what only the command line has: the form of the output.

All else is made from the models:

* the command line (`specsim.commands.bind`), its defaults from specsim.toml and `specsim config`;
* the Python functions, their signatures and types (`specsim.api.functions`);
* the command that a result carries to be repeated (`declare.repeat`);
* the option tables of scenario, fleet and sweep files (`file_keys`), and those of the reference.

To add an option: a field here, and the line that uses it. To add a command: its model here, a use
case in `specsim.api` (options in, result out), and a function that writes the result in the module
of `specsim.commands` with the family's name, named in the table of `specsim.commands`.
"""

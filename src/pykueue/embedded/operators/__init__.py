"""Stand-in operators: the job kinds of other projects on the embedded cluster, without their programs.

Each kind has a CustomResourceDefinition and an `Operator`: a pure function from a job and its objects to what
its operator would do next. One generic controller runs them all. Names, labels, counts, the suspend field and
`managedBy` come from the descriptions in `pykueue.api.jobkinds`; what each operator does comes from
docs/reference/operators.md.
"""

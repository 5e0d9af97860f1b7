//! The errors for all uses of the attributes that are not accepted, and for targets of a pause. Each case in `ui/` is beside the compiler's output.
//! `TRYBUILD=overwrite` updates that output, which then has to be reviewed.
//!
//! The cases are checked by one run of cargo, in parallel. `trybuild` does so only if no case has to compile: those are
//! in `accepted/`.

#[test]
fn ui() {
    let cases = trybuild::TestCases::new();
    for attribute in [
        "command",
        "context",
        "entity",
        "failure",
        "message",
        "pause",
        "saga",
        "signal",
        "step",
        "subscribes",
        "trace",
    ] {
        cases.compile_fail(format!("ui/{attribute}/*.rs"));
    }
}

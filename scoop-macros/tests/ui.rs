//! Accepted uses of the attributes, and the errors for all others. Each case in `ui/` is beside the compiler's
//! output. `TRYBUILD=overwrite` updates that output, which then has to be reviewed.

#[test]
fn ui() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/*.rs");
    for attribute in ["context", "failure", "message", "saga", "step", "subscribes", "trace"] {
        cases.compile_fail(format!("tests/ui/{attribute}/*.rs"));
    }
}

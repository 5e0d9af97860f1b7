//! What the attributes accept, and the errors for what they do not: each case in `ui/` beside
//! what the compiler says about it. `TRYBUILD=overwrite` writes that anew, to be read.

#[test]
fn ui() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/*.rs");
    for attribute in ["context", "failure", "message", "saga", "step", "subscribes", "trace"] {
        cases.compile_fail(format!("tests/ui/{attribute}/*.rs"));
    }
}

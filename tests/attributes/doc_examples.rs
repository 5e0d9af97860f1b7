//! The tests of the attributes, and the examples of their documentation, in a package of their own: Cargo builds what the
//! tests of `scoop-macros` depend on once more, as dependencies of a macro.
#![cfg(doctest)]

macro_rules! examples {
    ($($module:ident: $page:literal)*) => {
        $(#[doc = include_str!(concat!("../../scoop-macros/docs/", $page))] mod $module {})*
    };
}

examples! {
    command: "command.md"
    context_key: "context_key.md"
    entity: "entity.md"
    failure_code: "failure_code.md"
    message: "message.md"
    saga: "saga.md"
    signal: "signal.md"
    step: "step.md"
    subscribes: "subscribes.md"
    trace: "trace.md"
}

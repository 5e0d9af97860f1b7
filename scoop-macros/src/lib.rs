//! The attributes of Scoop: `#[saga]`, `#[step]`, `#[subscribes]`, `#[entity]`, `#[command]`, `#[trace]`, and the derives `Message`,
//! `ContextKey` and `FailureCode`.
//!
//! Use them through the crate `scoop`, which re-exports them beside the traits they implement.
//!
//! Each attribute goes from tokens to syntax, from syntax to a checked model, and from that to tokens. All
//! mistakes are reported at once, at the user's own tokens, and the user's code is always passed on. Checks
//! that need types are left to the compiler: the expansion only makes the compiler's errors land on the user's
//! types.
//!
//! The documentation of each is a page in `docs/`. The package `tests/attributes` tests the examples, since only that one depends
//! on the crate `scoop`.

mod command;
mod context;
mod derive;
mod duration;
mod entity;
mod errors;
mod failure_code;
mod keep;
mod message;
mod misplaced;
mod names;
mod near_miss;
mod redact;
mod saga;
mod settings;
mod signal;
#[cfg(test)]
mod snapshot;
mod trace;

use proc_macro::TokenStream;

#[cfg_attr(not(doctest), doc = include_str!("../docs/message.md"))]
#[proc_macro_derive(Message, attributes(message))]
pub fn message(input: TokenStream) -> TokenStream {
    message::derive(input.into()).into()
}

#[cfg_attr(not(doctest), doc = include_str!("../docs/signal.md"))]
#[proc_macro_derive(Signal, attributes(signal))]
pub fn signal(input: TokenStream) -> TokenStream {
    signal::derive(input.into()).into()
}

#[cfg_attr(not(doctest), doc = include_str!("../docs/entity.md"))]
#[proc_macro_attribute]
pub fn entity(arguments: TokenStream, item: TokenStream) -> TokenStream {
    entity::entity(arguments.into(), item.into()).into()
}

#[cfg_attr(not(doctest), doc = include_str!("../docs/command.md"))]
#[proc_macro_attribute]
pub fn command(arguments: TokenStream, item: TokenStream) -> TokenStream {
    command::command(arguments.into(), item.into()).into()
}

#[cfg_attr(not(doctest), doc = include_str!("../docs/context_key.md"))]
#[proc_macro_derive(ContextKey, attributes(context))]
pub fn context_key(input: TokenStream) -> TokenStream {
    context::derive(input.into()).into()
}

#[cfg_attr(not(doctest), doc = include_str!("../docs/failure_code.md"))]
#[proc_macro_derive(FailureCode, attributes(failure))]
pub fn failure_code(input: TokenStream) -> TokenStream {
    failure_code::derive(input.into()).into()
}

#[cfg_attr(not(doctest), doc = include_str!("../docs/trace.md"))]
#[proc_macro_attribute]
pub fn trace(arguments: TokenStream, item: TokenStream) -> TokenStream {
    trace::item(arguments.into(), item.into()).into()
}

#[cfg_attr(not(doctest), doc = include_str!("../docs/saga.md"))]
#[proc_macro_attribute]
pub fn saga(arguments: TokenStream, item: TokenStream) -> TokenStream {
    saga::saga(arguments.into(), item.into()).into()
}

#[cfg_attr(not(doctest), doc = include_str!("../docs/step.md"))]
#[proc_macro_attribute]
pub fn step(_arguments: TokenStream, item: TokenStream) -> TokenStream {
    misplaced::step(item.into()).into()
}

#[cfg_attr(not(doctest), doc = include_str!("../docs/subscribes.md"))]
#[proc_macro_attribute]
pub fn subscribes(arguments: TokenStream, item: TokenStream) -> TokenStream {
    misplaced::subscribes(arguments.into(), item.into()).into()
}

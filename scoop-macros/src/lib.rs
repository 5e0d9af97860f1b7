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
mod crate_path;
mod derive;
mod duration;
mod entity;
mod errors;
mod failure_code;
mod find_by;
mod message;
mod misplaced;
mod names;
mod near_miss;
mod redact;
mod retention;
mod saga;
mod settings;
mod signal;
#[cfg(test)]
mod snapshot;
mod trace;
mod wait;

use proc_macro::TokenStream;

#[cfg_attr(not(doctest), doc = include_str!("../docs/message.md"))]
#[proc_macro_derive(Message, attributes(message))]
pub fn message(input: TokenStream) -> TokenStream {
    crate_path::of_derive("message", input.into(), message::derive).into()
}

#[cfg_attr(not(doctest), doc = include_str!("../docs/signal.md"))]
#[proc_macro_derive(Signal, attributes(signal))]
pub fn signal(input: TokenStream) -> TokenStream {
    crate_path::of_derive("signal", input.into(), signal::derive).into()
}

#[cfg_attr(not(doctest), doc = include_str!("../docs/entity.md"))]
#[proc_macro_attribute]
pub fn entity(arguments: TokenStream, item: TokenStream) -> TokenStream {
    crate_path::of_attribute(arguments.into(), item.into(), entity::entity).into()
}

#[cfg_attr(not(doctest), doc = include_str!("../docs/command.md"))]
#[proc_macro_attribute]
pub fn command(arguments: TokenStream, item: TokenStream) -> TokenStream {
    crate_path::of_attribute(arguments.into(), item.into(), command::command).into()
}

#[cfg_attr(not(doctest), doc = include_str!("../docs/context_key.md"))]
#[proc_macro_derive(ContextKey, attributes(context))]
pub fn context_key(input: TokenStream) -> TokenStream {
    crate_path::of_derive("context", input.into(), context::derive).into()
}

#[cfg_attr(not(doctest), doc = include_str!("../docs/failure_code.md"))]
#[proc_macro_derive(FailureCode, attributes(failure))]
pub fn failure_code(input: TokenStream) -> TokenStream {
    crate_path::of_derive("failure", input.into(), failure_code::derive).into()
}

#[cfg_attr(not(doctest), doc = include_str!("../docs/trace.md"))]
#[proc_macro_attribute]
pub fn trace(arguments: TokenStream, item: TokenStream) -> TokenStream {
    crate_path::of_attribute(arguments.into(), item.into(), trace::item).into()
}

#[cfg_attr(not(doctest), doc = include_str!("../docs/saga.md"))]
#[proc_macro_attribute]
pub fn saga(arguments: TokenStream, item: TokenStream) -> TokenStream {
    crate_path::of_attribute(arguments.into(), item.into(), saga::saga).into()
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

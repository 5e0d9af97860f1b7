//! The attributes of Scoop: `#[saga]`, `#[step]`, `#[subscribes]` and `#[derive(Message)]`.
//!
//! Use them through the crate `scoop`, which re-exports them beside the traits they implement.

mod duration;
mod errors;
mod message;
mod misplaced;
mod names;
mod saga;
mod settings;

use proc_macro::TokenStream;

/// TODO
#[proc_macro_derive(Message, attributes(message))]
pub fn message(input: TokenStream) -> TokenStream {
    message::derive(input.into()).into()
}

/// TODO
#[proc_macro_attribute]
pub fn saga(arguments: TokenStream, item: TokenStream) -> TokenStream {
    saga::saga(arguments.into(), item.into()).into()
}

/// TODO
#[proc_macro_attribute]
pub fn step(_arguments: TokenStream, item: TokenStream) -> TokenStream {
    misplaced::step(item.into()).into()
}

/// TODO
#[proc_macro_attribute]
pub fn subscribes(arguments: TokenStream, item: TokenStream) -> TokenStream {
    misplaced::subscribes(arguments.into(), item.into()).into()
}

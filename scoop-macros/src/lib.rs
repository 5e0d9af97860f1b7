//! The attributes of Scoop.
use proc_macro::TokenStream;

/// skeleton
#[proc_macro_derive(Message, attributes(message))]
pub fn message(_: TokenStream) -> TokenStream {
    TokenStream::new()
}
/// skeleton
#[proc_macro_attribute]
pub fn saga(_: TokenStream, item: TokenStream) -> TokenStream {
    item
}
/// skeleton
#[proc_macro_attribute]
pub fn step(_: TokenStream, item: TokenStream) -> TokenStream {
    item
}
/// skeleton
#[proc_macro_attribute]
pub fn subscribes(_: TokenStream, item: TokenStream) -> TokenStream {
    item
}

//! `#[saga]`: an `impl` block as a saga, in three stages.

mod awaits;
mod delivery;
pub(crate) mod expand;
mod filter;
mod launches;
mod limits;
mod model;
pub(crate) mod parameters;
pub(crate) mod parse;
mod resolve;
pub(crate) mod retry;
mod schedule;
mod signature;
mod subscription;
pub(crate) mod types;
mod unnamed;

use proc_macro2::TokenStream;
use quote::quote;

use crate::errors::Errors;
use crate::misplaced;

/// The user's block without our attributes, with the saga or all its mistakes.
pub(crate) fn saga(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let block: parse::Block = match syn::parse2(item.clone()) {
        Ok(block) => block,
        Err(error) => {
            let (error, item) = (error.to_compile_error(), misplaced::without_ours(item));
            return quote!(#error #item);
        }
    };
    let uses = expand::uses(block.stripped());
    let mut errors = Errors::default();
    match model::check(arguments, &block, &mut errors) {
        (Some(outline), Some(saga)) => {
            let saga = expand::saga(&outline, &saga);
            // A value is lent by its exact type, such as a `&String`.
            quote!(#[allow(clippy::ptr_arg)] #block #uses #saga)
        }
        (outline, _) => {
            let stub = outline.as_ref().map(expand::stub);
            quote!(#errors #block #uses #stub)
        }
    }
}

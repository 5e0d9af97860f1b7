//! `#[step]` and `#[subscribes]` that `#[saga]` has not removed: in the wrong place, or above `#[saga]`.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, parse_quote};

use crate::crate_path;

/// Every `#[step]` that is expanded belongs to no saga.
pub(crate) fn step(item: TokenStream) -> TokenStream {
    let message = "`#[step]` belongs on a method inside a `#[saga]` impl; \
                   write `#[saga]` and `#[subscribes(YourMessage)]` on the `impl` block";
    let error = syn::Error::new(proc_macro2::Span::call_site(), message).to_compile_error();
    quote!(#error #item)
}

/// A `#[subscribes]` above `#[saga]` goes below it; any other belongs to no saga.
pub(crate) fn subscribes(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let annotated = syn::parse2::<Annotated>(item.clone()).ok();
    let below = annotated.and_then(|mut item| {
        let saga = item.attrs.iter().find(|attribute| is(attribute, "saga"))?;
        let path = crate_path::like(&saga.meta, quote!(::scoop::subscribes));
        item.attrs.push(parse_quote!(#[#path(#arguments)]));
        Some(item.into_token_stream())
    });
    below.unwrap_or_else(|| {
        let message = "`#[subscribes]` belongs on an `impl` block beside `#[saga]`; \
                       write `#[saga]` above it";
        let error = syn::Error::new(proc_macro2::Span::call_site(), message).to_compile_error();
        quote!(#error #item)
    })
}

/// The item without our attributes above it, next to an error that explains all of them.
pub(crate) fn without_ours(item: TokenStream) -> TokenStream {
    match syn::parse2::<Annotated>(item.clone()) {
        Ok(mut item) => {
            item.attrs.retain(|attribute| !is(attribute, "saga") && !is(attribute, "subscribes"));
            item.into_token_stream()
        }
        Err(_) => item,
    }
}

/// Whether the attribute has this name, with any path before it.
pub(crate) fn is(attribute: &Attribute, name: &str) -> bool {
    let last = attribute.path().segments.last();
    last.is_some_and(|segment| segment.ident == name)
}

struct Annotated {
    attrs: Vec<Attribute>,
    rest: TokenStream,
}

impl Parse for Annotated {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        Ok(Self { attrs: input.call(Attribute::parse_outer)?, rest: input.parse()? })
    }
}

impl ToTokens for Annotated {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let Self { attrs, rest } = self;
        tokens.extend(quote!(#(#attrs)* #rest));
    }
}

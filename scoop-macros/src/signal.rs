//! `#[derive(Signal)]`: a type, the name of its signal, and how long an early one is kept.

use std::time::Duration;

use proc_macro2::TokenStream;
use quote::quote;
use syn::DeriveInput;

use crate::derive::{self, Attribute};
use crate::duration;
use crate::errors::Errors;
use crate::names::{self, Kind, kebab_case};

const SIGNAL: Attribute = Attribute {
    name: "signal",
    keys: &["name", "retention"],
    example: "#[signal(name = \"..\", retention = \"7 days\")]",
};

const RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The implementation of `Signal`, and its registration. Its supertraits require serde's traits.
pub(crate) fn derive(input: TokenStream) -> TokenStream {
    let input: DeriveInput = match syn::parse2(input) {
        Ok(input) => input,
        Err(error) => return error.to_compile_error(),
    };
    let mut errors = Errors::default();
    let settings = SIGNAL.settings(&input, &mut errors);
    let name = settings.text("name", &mut errors);
    let name = names::stored(Kind::Signal, name.as_ref(), &input.ident, kebab_case, &mut errors);
    let retention = settings.text("retention", &mut errors);
    let retention = retention.and_then(|text| errors.record(duration::parse(&text))).unwrap_or(RETENTION);
    let millis = u64::try_from(retention.as_millis()).expect("the attributes take no such durations");

    let generic = "its name stands for one type; derive `Signal` on a type without parameters";
    if !derive::is_one_type(&input, "a signal", generic, &mut errors) {
        return quote!(#errors);
    }
    let ident = &input.ident;
    quote! {
        #errors
        impl ::scoop::Signal for #ident {
            const NAME: &'static str = #name;
            const RETENTION: ::core::time::Duration = ::core::time::Duration::from_millis(#millis);
        }
        ::scoop::__private::inventory::submit! {
            ::scoop::__private::NamedType::signal::<#ident>()
        }
    }
}

//! `#[derive(ContextKey)]`: a type and its key in the context.

use proc_macro2::TokenStream;
use quote::quote;
use syn::DeriveInput;

use crate::derive::{self, Attribute};
use crate::errors::Errors;
use crate::names::{self, Kind};

const CONTEXT: Attribute = Attribute { name: "context", keys: &["key"], example: "#[context(key = \"..\")]" };

/// The implementation of `ContextKey`, and its registration. Its supertraits require serde's traits.
pub(crate) fn derive(input: TokenStream) -> TokenStream {
    let input: DeriveInput = match syn::parse2(input) {
        Ok(input) => input,
        Err(error) => return error.to_compile_error(),
    };
    let mut errors = Errors::default();
    let key = CONTEXT.settings(&input, &mut errors).text("key", &mut errors);
    let key = names::stored(Kind::ContextKey, key.as_ref(), &input.ident, str::to_owned, &mut errors);

    let generic = "its key names one type; derive `ContextKey` on a type without parameters";
    if !derive::is_one_type(&input, "an element of the context", generic, &mut errors) {
        return quote!(#errors);
    }
    let ident = &input.ident;
    quote! {
        #errors
        impl ::scoop::ContextKey for #ident {
            const KEY: &'static str = #key;
        }
        ::scoop::__private::inventory::submit! {
            ::scoop::__private::NamedType::context_key::<#ident>()
        }
    }
}

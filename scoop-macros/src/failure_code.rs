//! `#[derive(FailureCode)]`: a type of errors and its stored code.

use proc_macro2::TokenStream;
use quote::quote;
use syn::DeriveInput;

use crate::derive::{self, Attribute};
use crate::errors::Errors;
use crate::names::{self, Kind, kebab_case};

const FAILURE: Attribute =
    Attribute { name: "failure", keys: &["code"], example: "#[failure(code = \"..\")]" };

/// The implementation of `FailureCode`, and its registration. The trait's supertraits require the other traits
/// of an error, so that the compiler reports a missing one at the user's type.
pub(crate) fn derive(input: TokenStream) -> TokenStream {
    let input: DeriveInput = match syn::parse2(input) {
        Ok(input) => input,
        Err(error) => return error.to_compile_error(),
    };
    let mut errors = Errors::default();
    let code = FAILURE.settings(&input, &mut errors).text("code", &mut errors);
    let code = names::stored(Kind::Code, code.as_ref(), &input.ident, kebab_case, &mut errors);

    let generic = "its code names one type; derive `FailureCode` on a type without parameters";
    if !derive::is_one_type(&input, "an error with a code", generic, &mut errors) {
        return quote!(#errors);
    }
    let ident = &input.ident;
    quote! {
        #errors
        impl ::scoop::FailureCode for #ident {
            const CODE: &'static str = #code;
        }
        ::scoop::__private::inventory::submit! {
            ::scoop::__private::CodedError::new::<#ident>()
        }
    }
}

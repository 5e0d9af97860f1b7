//! `#[derive(FailureCode)]`: a type of errors and the code it is stored as.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, Data, DeriveInput, Meta};

use crate::errors::Errors;
use crate::names::{self, Kind, kebab_case};
use crate::settings::Settings;

/// The implementation of `FailureCode`, and its registration. What else an error needs is asked
/// for by the trait's supertraits, so that the compiler reports their lack at the user's type.
pub(crate) fn derive(input: TokenStream) -> TokenStream {
    let input: DeriveInput = match syn::parse2(input) {
        Ok(input) => input,
        Err(error) => return error.to_compile_error(),
    };
    let mut errors = Errors::default();
    let code = code(&input, &mut errors);
    if !input.generics.params.is_empty() {
        let message = "an error with a code cannot be generic: its code names one type; \
                       derive `FailureCode` on a type without parameters";
        errors.at(&input.generics, message);
        return quote!(#errors);
    }
    if let Data::Union(data) = &input.data {
        errors.at(data.union_token, "an error is a struct or an enum");
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

fn code(input: &DeriveInput, errors: &mut Errors) -> String {
    let mut attributes = input.attrs.iter().filter(|a| a.path().is_ident("failure"));
    let settings = match attributes.next() {
        Some(attribute) => settings(attribute, errors),
        None => Settings::default(),
    };
    for repeated in attributes {
        errors.at(repeated, "`#[failure]` stands here twice; remove one");
    }
    let written = settings.text("code", errors);
    names::stored(Kind::Code, written.as_ref(), &input.ident, kebab_case, errors)
}

fn settings(attribute: &Attribute, errors: &mut Errors) -> Settings {
    match &attribute.meta {
        Meta::List(list) => Settings::read("#[failure]", &["code"], list.tokens.clone(), errors),
        other => {
            errors.at(other, "write `#[failure(code = \"..\")]`");
            Settings::default()
        }
    }
}

//! `#[derive(Message)]`: a type and the topic it is published on.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, Data, DeriveInput, Meta};

use crate::errors::Errors;
use crate::names::{self, Kind, kebab_case};
use crate::settings::Settings;

/// The implementation of `Message`; serde's traits are asked for by its supertraits, so that
/// the compiler reports their lack at the user's type.
pub(crate) fn derive(input: TokenStream) -> TokenStream {
    let input: DeriveInput = match syn::parse2(input) {
        Ok(input) => input,
        Err(error) => return error.to_compile_error(),
    };
    let mut errors = Errors::default();
    let topic = topic(&input, &mut errors);
    if !input.generics.params.is_empty() {
        let message = "a message cannot be generic: its topic names one type; \
                       derive `Message` on a type without parameters";
        errors.at(&input.generics, message);
        return quote!(#errors);
    }
    if let Data::Union(data) = &input.data {
        errors.at(data.union_token, "a message is a struct or an enum");
        return quote!(#errors);
    }
    let ident = &input.ident;
    quote! {
        #errors
        impl ::scoop::Message for #ident {
            const TOPIC: &'static str = #topic;
            type Reply = ();
        }
    }
}

fn topic(input: &DeriveInput, errors: &mut Errors) -> String {
    let mut attributes = input.attrs.iter().filter(|a| a.path().is_ident("message"));
    let settings = match attributes.next() {
        Some(attribute) => settings(attribute, errors),
        None => Settings::default(),
    };
    for repeated in attributes {
        errors.at(repeated, "`#[message]` stands here twice; remove one");
    }
    let written = settings.text("topic", errors);
    names::stored(Kind::Topic, written.as_ref(), &input.ident, kebab_case, errors)
}

fn settings(attribute: &Attribute, errors: &mut Errors) -> Settings {
    match &attribute.meta {
        Meta::List(list) => Settings::read("#[message]", &["topic"], list.tokens.clone(), errors),
        other => {
            errors.at(other, "write `#[message(topic = \"..\")]`");
            Settings::default()
        }
    }
}

//! `#[derive(Message)]`: a type, its topic, and its replies.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{DeriveInput, LitStr};

use crate::derive::{self, Attribute};
use crate::errors::Errors;
use crate::find_by;
use crate::names::{self, Kind, did_you_mean, kebab_case};
use crate::redact;
use crate::retention;
use crate::wait;

const MESSAGE: Attribute = Attribute {
    name: "message",
    keys: &["topic", "reply", "replies", "handlers", "retention", "redact", "find_by", "wait"],
    example: "#[message(topic = \"..\")]",
};

/// The implementation of `Message`. Its supertraits require serde's traits, so that the compiler reports a
/// missing one at the user's type.
pub(crate) fn derive(input: TokenStream) -> TokenStream {
    let input: DeriveInput = match syn::parse2(input) {
        Ok(input) => input,
        Err(error) => return error.to_compile_error(),
    };
    let mut errors = Errors::default();
    let settings = MESSAGE.settings(&input, &mut errors);
    let topic = settings.text("topic", &mut errors);
    let topic = names::stored(Kind::Topic, topic.as_ref(), &input.ident, kebab_case, &mut errors);
    let (one, many) = (settings.ty("reply", &mut errors), settings.ty("replies", &mut errors));
    if let (Some(key), Some(_)) = (settings.key("replies"), settings.key("reply")) {
        errors.at(key, "a handler replies once (`reply`) or any number of times (`replies`); remove one");
    }
    let many_replies = many.is_some().then(|| {
        quote!(
            const MANY_REPLIES: bool = true;
        )
    });
    let reply = many.or(one);
    let ident = &input.ident;
    let has_reply =
        reply.as_ref().map(|reply| quote!(impl ::scoop::HasReply for #ident { type Declared = #reply; }));
    let reply = reply.map_or_else(|| quote!(()), ToTokens::into_token_stream);
    let handlers = settings.text("handlers", &mut errors);
    let handlers = handlers.and_then(|text| errors.record(is_required(&text)));
    let requires_handler = handlers.map(|_| {
        quote!(
            const REQUIRES_HANDLER: bool = true;
        )
    });

    let retention = retention::constant(&settings, &mut errors);

    let wait = wait::function(&settings, &mut errors);

    let redacted = settings.tokens("redact", "redact(field, another_field)", &mut errors);
    let redacted = redacted.map(|fields| redact::stored_names(fields, &settings, &input, &mut errors));
    let find_by = find_by::constant(&settings, &input, redacted.as_deref().unwrap_or_default(), &mut errors);
    let redacted = redacted.map(|names| {
        quote!(
            const REDACTED: &'static [&'static str] = &[#(#names),*];
        )
    });

    let generic = "its topic names one type; derive `Message` on a type without parameters";
    if !derive::is_one_type(&input, "a message", generic, &mut errors) {
        return quote!(#errors);
    }
    quote! {
        #errors
        impl ::scoop::Message for #ident {
            const TOPIC: &'static str = #topic;
            type Reply = #reply;
            #many_replies
            #requires_handler
            #retention
            #redacted
            #find_by
            #wait
        }
        #has_reply
    }
}

/// The only value of `handlers`.
fn is_required(literal: &LitStr) -> syn::Result<()> {
    let value = literal.value();
    if value == "required" {
        return Ok(());
    }
    let meant = did_you_mean(&value, ["required"]);
    let message = format!("`handlers` is `\"required\"`, or left out{meant}");
    Err(syn::Error::new(literal.span(), message))
}

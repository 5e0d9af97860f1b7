//! `#[subscribes(..)]`: the messages of a saga.

use proc_macro2::TokenStream;
use quote::format_ident;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Attribute, Ident, Meta, Path, Token, Type, parenthesized, parse_quote, token};

use super::filter::{self, Filter};
use super::parse::Block;
use super::types::{last_segment, strip_groups, text};
use crate::errors::Errors;

const ONE: &str = "name one type of messages: `#[subscribes(YourMessage)]`";
const SEVERAL: &str = "a saga of several messages names them as `#[subscribes(any(YourMessage, Another))]`";
const ANY: &str = "`any` takes types of messages: `#[subscribes(any(YourMessage, Another))]`";

/// The messages of a saga.
pub(super) struct Subscription {
    /// The type that its functions take.
    pub(super) message: Type,
    /// The enum to generate, if there are several types of messages.
    pub(super) any: Option<MessageEnum>,
    /// The filter of `Failed`, if it has one.
    pub(super) filter: Option<Filter>,
}

/// The enum of the messages of a saga.
pub(super) struct MessageEnum {
    pub(super) ident: Ident,
    /// `any`, as written.
    pub(super) keyword: Ident,
    /// The variants, each with its message.
    pub(super) variants: Vec<(Ident, Type)>,
}

/// The attribute's arguments.
enum Written {
    One(Type),
    Any(Ident, Vec<Type>),
    Filtered(Type, TokenStream),
}

impl Parse for Written {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let written = if is_any(input) {
            let (keyword, content) = (input.parse()?, content(input)?);
            Self::Any(keyword, content)
        } else if is_filtered(input) {
            let message = input.call(Path::parse_mod_style)?;
            let arguments;
            parenthesized!(arguments in input);
            Self::Filtered(parse_quote!(#message), arguments.parse()?)
        } else {
            Self::One(input.parse().map_err(|error| syn::Error::new(error.span(), ONE))?)
        };
        if input.is_empty() { Ok(written) } else { Err(input.error(SEVERAL)) }
    }
}

/// The types in parentheses.
fn content(input: ParseStream<'_>) -> syn::Result<Vec<Type>> {
    let content;
    parenthesized!(content in input);
    let types = Punctuated::<Member, Token![,]>::parse_terminated(&content)?;
    Ok(types.into_iter().map(|Member(ty)| ty).collect())
}

/// One of several messages.
struct Member(Type);

impl Parse for Member {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if is_any(input) {
            let why = "`any` cannot be inside another one; write its messages beside the others";
            return Err(input.error(why));
        }
        if is_filtered(input) {
            return Err(
                input.error("a filter cannot be inside `any`; write a saga of its own for this message")
            );
        }
        input.parse().map(Self).map_err(|error| syn::Error::new(error.span(), ANY))
    }
}

/// Whether `any(..)` follows.
fn is_any(input: ParseStream<'_>) -> bool {
    let ahead = input.fork();
    ahead.parse::<Ident>().is_ok_and(|name| name == "any") && ahead.peek(token::Paren)
}

/// Whether a message with a filter follows.
fn is_filtered(input: ParseStream<'_>) -> bool {
    let ahead = input.fork();
    ahead.call(Path::parse_mod_style).is_ok() && ahead.peek(token::Paren)
}

/// Reads the subscription of the saga `ident`.
pub(super) fn read(block: &Block, ident: &Ident, errors: &mut Errors) -> Option<Subscription> {
    let Some((first, more)) = block.subscribes.split_first() else {
        let message = format!("`{ident}` has no message; write `#[subscribes(YourMessage)]` below `#[saga]`");
        errors.at(&block.self_ty, message);
        return None;
    };
    for repeated in more {
        errors.at(
            repeated,
            "a saga has one `#[subscribes]`; remove this, or name several messages as `any(YourMessage, Another)`",
        );
    }
    match written(first, errors)? {
        Written::One(message) => Some(Subscription { message, any: None, filter: None }),
        Written::Filtered(message, arguments) => {
            let filter = filter::read(&message, arguments, errors);
            Some(Subscription { message, any: None, filter })
        }
        Written::Any(keyword, messages) => several(ident, keyword, messages, errors),
    }
}

fn written(attribute: &Attribute, errors: &mut Errors) -> Option<Written> {
    match &attribute.meta {
        Meta::List(list) if !list.tokens.is_empty() => errors.keep(attribute.parse_args()),
        other => {
            errors.at(other, ONE);
            None
        }
    }
}

/// The enum of several messages. It has the variants without a mistake.
fn several(saga: &Ident, keyword: Ident, messages: Vec<Type>, errors: &mut Errors) -> Option<Subscription> {
    let ident = format_ident!("{}Message", saga.unraw(), span = keyword.span());
    match &*messages {
        [] => errors.at(&keyword, ANY),
        [only] => {
            let message =
                format!("`any` of one message is that message; write `#[subscribes({})]`", text(only));
            errors.at(&keyword, message);
        }
        _ => {}
    }
    let mut variants: Vec<(Ident, Type)> = vec![];
    for message in messages {
        match variant(&ident, &variants, &message) {
            Ok(variant) => variants.push((variant, message)),
            Err(why) => errors.at(&message, why),
        }
    }
    let message = parse_quote!(#ident);
    if let Some((own, _)) = variants.iter().find(|(variant, _)| *variant == ident) {
        let remedy = "rename the saga, or import the message under another name: `use .. as Other`";
        errors.at(own, format!("the steps take an enum that is generated as `{ident}`; {remedy}"));
        return Some(Subscription { message, any: None, filter: None });
    }
    let any = MessageEnum { ident, keyword, variants };
    (!any.variants.is_empty()).then(|| Subscription { message, any: Some(any), filter: None })
}

/// The variant of a message: the name of its type.
fn variant(own: &Ident, earlier: &[(Ident, Type)], message: &Type) -> Result<Ident, String> {
    let Some(segment) = last_segment(message) else { return Err(ANY.into()) };
    let variant = segment.ident.unraw();
    match earlier.iter().find(|(name, _)| *name == variant) {
        Some((_, twin)) if strip_groups(twin) == strip_groups(message) => {
            Err(format!("`{}` stands here twice; remove one", text(message)))
        }
        Some((_, twin)) => Err(format!(
            "this and `{}` would both be `{own}::{variant}`; import one of them under another name: `use .. as Other`",
            text(twin)
        )),
        None => Ok(variant),
    }
}

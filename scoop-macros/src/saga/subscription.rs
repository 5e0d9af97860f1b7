//! `#[subscribes(..)]`: the messages of a saga.

use std::time::Duration;

use proc_macro2::TokenStream;
use quote::format_ident;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Expr, Ident, Meta, Path, Token, Type, parenthesized, parse_quote, token};

use super::filter::{self, Filter};
use super::parse::Block;
use super::types::{last_segment, strip_groups, text};
use crate::duration;
use crate::errors::Errors;
use crate::names::{Kind, kebab_case};
use crate::settings::Settings;

const ONE: &str = "name one type of messages: `#[subscribes(YourMessage)]`";
const SEVERAL: &str = "a saga of several messages names them as `#[subscribes(any(YourMessage, Another))]`";
const ANY: &str = "`any` takes types of messages: `#[subscribes(any(YourMessage, Another))]`";
const JOIN: &str = "`join` takes types of messages, and what they have in common: \
                    `#[subscribes(join(YourMessage, Another, by = field))]`";

/// The prefix of the topic of the messages that are launched for joined sets. The first name of the saga follows.
const JOIN_TOPIC_PREFIX: &str = "joins.";

pub(super) struct Subscription {
    pub(super) message: Type,
    /// What to generate, if there are several types of messages.
    pub(super) messages: Option<Messages>,
    pub(super) filter: Option<Filter>,
}

pub(super) struct Messages {
    pub(super) ident: Ident,
    /// `any` or `join`, as written.
    pub(super) keyword: Ident,
    /// The messages, each with the name of its variant or field.
    pub(super) members: Vec<(Ident, Type)>,
    /// How they are joined; `None` for an enum.
    pub(super) join: Option<Join>,
}

pub(super) struct Join {
    pub(super) topic: String,
    /// The key of each message; none if there was a mistake.
    pub(super) keys: Vec<Key>,
    pub(super) within: Option<Duration>,
}

/// The key of a message: a field of it, or the result of a function.
#[derive(Clone)]
pub(super) enum Key {
    Field(Ident),
    Function(Path),
}

impl Messages {
    /// Whether the type can be generated with all that belongs to it.
    pub(super) fn is_sound(&self) -> bool {
        self.join.as_ref().is_none_or(|join| join.keys.len() == self.members.len())
    }
}

enum Written {
    One(Type),
    Several(Ident, Vec<Type>, TokenStream),
    Filtered(Type, TokenStream),
}

impl Parse for Written {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let written = match keyword(input) {
            Some(_) => {
                let keyword: Ident = input.parse()?;
                let (types, settings) = content(input, &keyword)?;
                Self::Several(keyword, types, settings)
            }
            None if is_filtered(input) => {
                let message = input.call(Path::parse_mod_style)?;
                let arguments;
                parenthesized!(arguments in input);
                Self::Filtered(parse_quote!(#message), arguments.parse()?)
            }
            None => Self::One(input.parse().map_err(|error| syn::Error::new(error.span(), ONE))?),
        };
        if input.is_empty() { Ok(written) } else { Err(input.error(SEVERAL)) }
    }
}

/// `any` or `join`, if its parentheses follow.
fn keyword(input: ParseStream<'_>) -> Option<Ident> {
    let ahead = input.fork();
    let keyword = ahead.parse::<Ident>().ok().filter(|name| name == "any" || name == "join")?;
    ahead.peek(token::Paren).then_some(keyword)
}

/// The types in parentheses, and the settings after them.
fn content(input: ParseStream<'_>, of: &Ident) -> syn::Result<(Vec<Type>, TokenStream)> {
    let content;
    parenthesized!(content in input);
    let mut types = vec![];
    let has_settings = of == "join";
    while !content.is_empty() {
        if has_settings && content.peek(Ident) && content.peek2(Token![=]) {
            break;
        }
        if let Some(inner) = keyword(&content) {
            let why = format!("`{inner}` cannot be inside of `{of}`; write its messages beside the others");
            return Err(syn::Error::new(inner.span(), why));
        }
        if is_filtered(&content) {
            let why = format!("a filter cannot be inside `{of}`; write a saga of its own for this message");
            return Err(content.error(why));
        }
        let takes = if of == "any" { ANY } else { JOIN };
        types.push(content.parse().map_err(|error| syn::Error::new(error.span(), takes))?);
        if !content.is_empty() {
            content.parse::<Token![,]>().map_err(|error| syn::Error::new(error.span(), takes))?;
        }
    }
    Ok((types, content.parse()?))
}

fn is_filtered(input: ParseStream<'_>) -> bool {
    let ahead = input.fork();
    ahead.call(Path::parse_mod_style).is_ok() && ahead.peek(token::Paren)
}

pub(super) fn read(block: &Block, ident: &Ident, saga: &str, errors: &mut Errors) -> Option<Subscription> {
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
        Written::One(message) => Some(Subscription { message, messages: None, filter: None }),
        Written::Filtered(message, arguments) => {
            let filter = filter::read(&message, arguments, errors);
            Some(Subscription { message, messages: None, filter })
        }
        Written::Several(keyword, types, settings) => {
            let is_join = keyword == "join";
            let mut messages = several(ident, keyword, types, errors);
            if is_join {
                messages.join = Some(join(&messages, saga, settings, errors));
            }
            let message = &messages.ident;
            let message = parse_quote!(#message);
            let messages = Some(messages).filter(|it| !it.members.is_empty());
            messages.as_ref()?;
            let own =
                messages.as_ref().and_then(|it| it.members.iter().find(|(_, ty)| is_path(ty, &it.ident)));
            if let Some((_, own)) = own {
                let hint = "rename the saga, or import the message under another name: `use .. as Other`";
                let name = text(&message);
                errors.at(own, format!("the steps take a type that is generated as `{name}`; {hint}"));
                return Some(Subscription { message, messages: None, filter: None });
            }
            Some(Subscription { message, messages, filter: None })
        }
    }
}

fn written(attribute: &Attribute, errors: &mut Errors) -> Option<Written> {
    match &attribute.meta {
        Meta::List(list) if !list.tokens.is_empty() => errors.record(attribute.parse_args()),
        other => {
            errors.at(other, ONE);
            None
        }
    }
}

fn is_path(ty: &Type, ident: &Ident) -> bool {
    last_segment(ty).is_some_and(|segment| segment.ident == *ident)
}

/// The type of several messages. It has the members without a mistake.
fn several(saga: &Ident, keyword: Ident, types: Vec<Type>, errors: &mut Errors) -> Messages {
    let ident = format_ident!("{}Message", saga.unraw(), span = keyword.span());
    match &*types {
        [] => errors.at(&keyword, if keyword == "any" { ANY } else { JOIN }),
        [only] => {
            let hint = format!("write `#[subscribes({})]`", text(only));
            errors.at(&keyword, format!("`{keyword}` of one message is that message; {hint}"));
        }
        _ => {}
    }
    let mut members: Vec<(Ident, Type)> = vec![];
    for ty in types {
        match name(&ident, &keyword, &members, &ty) {
            Ok(name) => members.push((name, ty)),
            Err(why) => errors.at(&ty, why),
        }
    }
    Messages { ident, keyword, members, join: None }
}

/// The variant or field of a message: the name of its type.
fn name(own: &Ident, keyword: &Ident, earlier: &[(Ident, Type)], ty: &Type) -> Result<Ident, String> {
    let is_any = keyword == "any";
    let Some(segment) = last_segment(ty) else { return Err(if is_any { ANY } else { JOIN }.into()) };
    let name = segment.ident.unraw();
    let name = if is_any { name } else { field(&name) };
    match earlier.iter().find(|(taken, _)| *taken == name) {
        Some((_, twin)) if strip_groups(twin) == strip_groups(ty) => {
            Err(format!("`{}` stands here twice; remove one", text(ty)))
        }
        Some((_, twin)) => {
            let both =
                if is_any { format!("`{own}::{name}`") } else { format!("the field `{name}` of `{own}`") };
            Err(format!(
                "this and `{}` would both be {both}; import one of them under another name: `use .. as Other`",
                text(twin)
            ))
        }
        None => Ok(name),
    }
}

/// The field for a type: `payment_captured` for `PaymentCaptured`.
fn field(ty: &Ident) -> Ident {
    let name = kebab_case(&ty.to_string()).replace('-', "_");
    match syn::parse_str::<Ident>(&name) {
        Ok(_) => Ident::new(&name, ty.span()),
        Err(_) => format_ident!("the_{name}", span = ty.span()), // `Type`, `Match`: no identifiers in lower case
    }
}

fn join(messages: &Messages, saga: &str, settings: TokenStream, errors: &mut Errors) -> Join {
    let settings = Settings::read("join", &["by", "within"], settings, errors);
    if settings.key("by").is_none() {
        errors.at(&messages.keyword, JOIN);
    }
    let takes = "a field of all messages, or a function for each: `by = field` or `by = [key_of_one, key_of_another]`";
    let keys = settings.expression("by", takes, errors, |value| match value {
        Expr::Path(path) => {
            let field = path.path.get_ident()?;
            Some(messages.members.iter().map(|_| Key::Field(field.clone())).collect())
        }
        Expr::Array(functions) => {
            let function = |value: &Expr| match value {
                Expr::Path(path) => Some(Key::Function(path.path.clone())),
                _ => None,
            };
            functions.elems.iter().map(function).collect::<Option<Vec<_>>>()
        }
        _ => None,
    });
    let keys: Vec<_> = keys.unwrap_or_default();
    if let (Some(by), false) = (settings.key("by"), keys.is_empty() || keys.len() == messages.members.len()) {
        let (keys, members) = (keys.len(), messages.members.len());
        errors
            .at(by, format!("there are {members} messages and {keys} functions; name one for each message"));
    }
    let within = settings.text("within", errors);
    let within = within.and_then(|within| errors.record(duration::parse(&within)));
    let topic = format!("{JOIN_TOPIC_PREFIX}{saga}");
    if let Some(why) = Kind::Topic.refuses(&topic) {
        let why = format!("the messages of complete sets have the topic `{topic}`, and {why}");
        errors.at(&messages.keyword, format!("{why}; write a shorter `name`"));
    }
    Join { topic, keys, within }
}

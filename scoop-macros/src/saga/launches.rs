//! `launches(MessageA, MessageB)`: the messages that a step declares to launch.

use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{Token, Type};

use super::types::{strip_groups, text};
use crate::errors::Errors;
use crate::settings::Settings;

pub(super) fn read(settings: &Settings, errors: &mut Errors) -> Option<Vec<Type>> {
    let tokens = settings.tokens("launches", "launches(YourMessage)", errors)?;
    let parser = Punctuated::<Type, Token![,]>::parse_terminated;
    let takes =
        |error: syn::Error| syn::Error::new(error.span(), "name types of messages: `launches(YourMessage)`");
    let types: Vec<_> = errors.record(parser.parse2(tokens).map_err(takes))?.into_iter().collect();
    for (index, ty) in types.iter().enumerate() {
        if types[..index].iter().any(|earlier| strip_groups(earlier) == strip_groups(ty)) {
            errors.at(ty, format!("`{}` stands here twice; remove one", text(ty)));
        }
    }
    Some(types)
}

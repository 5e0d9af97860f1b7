//! `awaits(Signal, by = function, within = "..")`: the signal before a step.

use std::time::Duration;

use proc_macro2::TokenStream;
use syn::parse::{ParseStream, Parser};
use syn::{Ident, Token, Type};

use crate::duration;
use crate::errors::Errors;
use crate::settings::Settings;

const EXAMPLE: &str = "awaits(YourSignal, by = function)";

#[derive(Clone)]
pub(super) struct Awaits {
    pub(super) ty: Type,
    /// The function that returns its key; `None` after an error.
    pub(super) by: Option<Ident>,
    pub(super) within: Option<Duration>,
}

impl Awaits {
    pub(super) fn read(of: &Settings, errors: &mut Errors) -> Option<Self> {
        let tokens = of.tokens("awaits", EXAMPLE, errors)?;
        let key = of.key("awaits")?.clone();
        let parser = |input: ParseStream<'_>| -> syn::Result<(Type, TokenStream)> {
            let ty = input.parse().map_err(|error| {
                let message = format!("name the type of the signal first: `{EXAMPLE}`");
                syn::Error::new(error.span(), message)
            })?;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
            Ok((ty, input.parse()?))
        };
        if tokens.is_empty() {
            errors.at(&key, format!("name the signal: `{EXAMPLE}`"));
            return None;
        }
        let (ty, rest) = errors.record(parser.parse2(tokens))?;
        let settings = Settings::read("awaits", &["by", "within"], rest, errors);
        if settings.key("by").is_none() {
            let message = "`by` names the function that returns the key of the signal";
            errors.at(&ty, format!("{message}; write `{EXAMPLE}`"));
        }
        let within = settings.text("within", errors);
        let within = within.and_then(|within| errors.record(duration::parse(&within)));
        Some(Self { ty, by: settings.function("by", errors), within })
    }
}

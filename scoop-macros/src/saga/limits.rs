//! The limits of a saga: `concurrency`.

use proc_macro2::TokenStream;
use syn::parse::{ParseStream, Parser};
use syn::{Expr, ExprLit, Ident, Lit, LitInt, ReceiverKind, Token};

use super::parse::{Block, Function};
use crate::errors::Errors;
use crate::settings::Settings;

/// The limits of a saga.
#[derive(Default)]
pub(super) struct Limits {
    pub(super) concurrency: Option<Concurrency>,
}

/// How many runs are executed at once: of the saga, or of each key.
pub(super) struct Concurrency {
    pub(super) most: u32,
    pub(super) by: Option<Key>,
}

/// Where the key of a message comes from.
pub(super) enum Key {
    /// A field of the message.
    Field(Ident),
    /// A function of the saga.
    Function(Ident),
}

impl Key {
    /// The name under which the limit is recorded.
    pub(super) fn name(&self) -> &Ident {
        match self {
            Self::Field(name) | Self::Function(name) => name,
        }
    }
}

/// Reads the limits of the saga in this block.
pub(super) fn read(settings: &Settings, block: &Block, errors: &mut Errors) -> Limits {
    let concurrency = match settings.is_nested("concurrency") {
        true => per_key(settings, block, errors),
        false => of_all(settings, errors).map(|most| Concurrency { most, by: None }),
    };
    Limits { concurrency }
}

/// `concurrency = 10`.
fn of_all(settings: &Settings, errors: &mut Errors) -> Option<u32> {
    let takes = "the number of runs that are executed at once: `concurrency = 10`";
    let written = settings.expression("concurrency", takes, errors, |value| match value {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => Some(number.clone()),
        _ => None,
    })?;
    errors.keep(number(&written))
}

const EXAMPLE: &str = "concurrency(1, by = customer)";

/// `concurrency(1, by = customer)`.
fn per_key(settings: &Settings, block: &Block, errors: &mut Errors) -> Option<Concurrency> {
    let tokens = settings.tokens("concurrency", EXAMPLE, errors)?;
    let (most, by) = errors.keep(first_and_rest.parse2(tokens))?;
    let most = errors.keep(number(&most));
    let settings_of_key = Settings::read("concurrency", &["by"], by, errors);
    if settings_of_key.key("by").is_none() {
        let message = "write `concurrency = 10` for a limit of the saga, or \
                       `concurrency(1, by = customer)` for one of each key";
        errors.at(settings.key("concurrency")?, message);
        return None;
    }
    let by = key(&settings_of_key, block, errors)?;
    Some(Concurrency { most: most?, by: Some(by) })
}

/// The number in front, and the tokens behind the comma.
fn first_and_rest(input: ParseStream<'_>) -> syn::Result<(LitInt, TokenStream)> {
    let number = input.parse().map_err(|error| {
        let message = format!("write the number of runs first: `{EXAMPLE}`");
        syn::Error::new(error.span(), message)
    })?;
    if !input.is_empty() {
        input.parse::<Token![,]>()?;
    }
    Ok((number, input.parse()?))
}

/// What `by` names: a function of the block, or else a field of the message.
fn key(settings: &Settings, block: &Block, errors: &mut Errors) -> Option<Key> {
    let takes =
        "the bare name of a function in this `impl` block, or of a field of the message: `by = customer`";
    let name = settings.expression("by", takes, errors, |value| match value {
        Expr::Path(path) => path.path.get_ident().cloned(),
        _ => None,
    })?;
    let Some(function) = block.functions().find(|function| function.sig.ident == name) else {
        return Some(Key::Field(name));
    };
    match unfit(function) {
        Some(why) => {
            errors.at(&name, format!("{why}: `fn {name}(&self, message: &YourMessage) -> String`"));
            None
        }
        None => Some(Key::Function(name)),
    }
}

/// Why a function cannot return keys.
fn unfit(function: &Function) -> Option<&'static str> {
    let inputs = &function.sig.inputs;
    let takes_self =
        function.sig.receiver().is_some_and(|it| matches!(it.kind, ReceiverKind::Reference(_, _, None)));
    if !function.steps.is_empty() {
        Some("a key is needed before the first step, and this is a step; name a function")
    } else if function.sig.asyncness.is_some() {
        Some("a key follows from the message alone, without waiting; write a function that is not `async`")
    } else if !takes_self || inputs.len() != 2 {
        Some("the function of a key takes `&self` and the message")
    } else {
        None
    }
}

fn number(written: &LitInt) -> syn::Result<u32> {
    let why = match written.base10_parse() {
        Ok(0) => "no run would ever begin; write 1 or more, or pause the saga",
        Ok(number) if i32::try_from(number).is_ok() => return Ok(number),
        _ => "at most 2147483647 runs are executed at once; write less, or remove this",
    };
    Err(syn::Error::new(written.span(), why))
}

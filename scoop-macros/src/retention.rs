//! `#[message(retention = "90 days")]`, and a time for each outcome: `#[message(retention(committed = "7 days"))]`.

use std::time::Duration;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Expr, ExprLit, Lit, LitStr};

use crate::duration;
use crate::errors::Errors;
use crate::settings::Settings;

/// The least time for which finished hierarchies are kept, as in the runtime.
const RETENTION_MIN: Duration = Duration::from_secs(60 * 60);

const OUTCOMES: [&str; 3] = ["committed", "rolled_back", "failed"];

const EXAMPLE: &str = "retention(committed = \"7 days\", rolled_back = \"30 days\")";

enum Written {
    Forever,
    Text(LitStr),
}

/// The constant of a message with times of its own.
pub(crate) fn constant(settings: &Settings, errors: &mut Errors) -> Option<TokenStream> {
    let key = settings.key("retention")?;
    let [committed, rolled_back] = if settings.is_nested("retention") {
        if settings.tokens("retention", EXAMPLE, errors)?.is_empty() {
            errors.at(key, format!("name a time for an outcome: `{EXAMPLE}`"));
        }
        let times = settings.nested("retention", &OUTCOMES, EXAMPLE, errors)?;
        check_failed(&times, errors);
        ["committed", "rolled_back"].map(|outcome| time(&times, outcome, errors))
    } else {
        let time = time(settings, "retention", errors);
        [time.clone(), time]
    };
    let [committed, rolled_back] = [committed, rolled_back].map(|time| match time {
        Some(time) => quote!(::core::option::Option::Some(#time)),
        None => quote!(::core::option::Option::None),
    });
    Some(quote! {
        const RETENTION: ::scoop::RetentionTimes =
            ::scoop::RetentionTimes { committed: #committed, rolled_back: #rolled_back };
    })
}

/// A hierarchy that awaits an operator has no other time than `forever`.
fn check_failed(times: &Settings, errors: &mut Errors) {
    if times.key("failed").is_none() {
        return;
    }
    let takes = "only `forever`, or is left out: a hierarchy whose rollback failed awaits an operator, and is never deleted";
    times.expression("failed", takes, errors, |value| is_forever(value).then_some(()));
}

/// The time given for a key: an hour at least, or for ever.
fn time(settings: &Settings, key: &str, errors: &mut Errors) -> Option<TokenStream> {
    settings.key(key)?;
    let takes = format!("a time: `{key} = \"90 days\"`, or `{key} = forever`");
    let written = settings.expression(key, &takes, errors, |value| match value {
        value if is_forever(value) => Some(Written::Forever),
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(Written::Text(text.clone())),
        _ => None,
    });
    match written? {
        Written::Forever => Some(quote!(::core::time::Duration::MAX)),
        Written::Text(text) => errors.record(seconds(&text)),
    }
}

fn seconds(literal: &LitStr) -> syn::Result<TokenStream> {
    let time = duration::parse(literal)
        .map_err(|error| syn::Error::new(literal.span(), format!("{error}; or `\"forever\"`")))?;
    if time < RETENTION_MIN {
        let message = "hierarchies are kept for an hour at least; write `\"1h\"` or more, or `\"forever\"`";
        return Err(syn::Error::new(literal.span(), message));
    }
    let seconds = time.as_secs();
    Ok(quote!(::core::time::Duration::from_secs(#seconds)))
}

fn is_forever(value: &Expr) -> bool {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => text.value() == "forever",
        Expr::Path(path) => path.path.is_ident("forever"),
        _ => false,
    }
}

//! The limits of a saga: `concurrency`.

use syn::{Expr, ExprLit, Lit, LitInt};

use crate::errors::Errors;
use crate::settings::Settings;

/// Reads how many runs are executed at once.
pub(super) fn read(settings: &Settings, errors: &mut Errors) -> Option<u32> {
    let takes = "the number of runs that are executed at once: `concurrency = 10`";
    let written = settings.expression("concurrency", takes, errors, |value| match value {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => Some(number.clone()),
        _ => None,
    })?;
    errors.keep(number(&written))
}

fn number(written: &LitInt) -> syn::Result<u32> {
    let why = match written.base10_parse() {
        Ok(0) => "no run would ever begin; write 1 or more, or pause the saga",
        Ok(number) if i32::try_from(number).is_ok() => return Ok(number),
        _ => "at most 2147483647 runs are executed at once; write less, or remove this",
    };
    Err(syn::Error::new(written.span(), why))
}

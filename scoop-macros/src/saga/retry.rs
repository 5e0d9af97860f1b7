//! `retry(..)`: the number of further attempts of a step before its failure counts, and the pauses between
//! them.

use std::time::Duration;

use syn::{Expr, ExprLit, Ident, Lit, Path, Signature};

use super::parse::Block;
use crate::duration;
use crate::errors::Errors;
use crate::settings::Settings;

/// The given settings. For the others the runtime has defaults.
#[derive(Clone)]
pub(crate) struct Retry {
    pub(crate) max: u32,
    pub(crate) backoff: Option<(Duration, Duration)>,
    pub(crate) jitter_percent: Option<u32>,
    pub(crate) when: Option<When>,
}

/// The function that decides which errors are worth another attempt.
#[derive(Clone)]
pub(crate) enum When {
    InBlock(Ident),
    Elsewhere(Path),
}

impl Retry {
    pub(crate) fn read(key: &str, of: &Settings, block: &Block, errors: &mut Errors) -> Option<Self> {
        let mut own_errors = Errors::default();
        let example = format!("{key}(max = 5)");
        let known = ["max", "backoff", "jitter", "when"];
        let settings = of.nested(key, &known, &example, &mut own_errors);
        let retry = settings.and_then(|settings| {
            let backoff = settings.text("backoff", &mut own_errors);
            let (backoff, jitter_percent, when) = (
                backoff.and_then(|backoff| own_errors.record(duration::parse_range(&backoff))),
                jitter_percent(&settings, &mut own_errors),
                when(&settings, block, &mut own_errors),
            );
            let max = max(&settings, &mut own_errors);
            if let Some(key) = of.key(key).filter(|_| max.is_none() && own_errors.is_empty()) {
                let message = format!("`{key}` has no `max`, the number of further attempts");
                own_errors.at(key, format!("{message}; write `{example}`"));
            }
            Some(Self { max: max?, backoff, jitter_percent, when })
        });
        errors.append(own_errors);
        retry
    }
}

fn max(settings: &Settings, errors: &mut Errors) -> Option<u32> {
    let takes = "a whole number from 1 to 1_000_000: `max = 5`";
    settings.expression("max", takes, errors, |value| match value {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => {
            number.base10_parse().ok().filter(|max| (1..=1_000_000).contains(max))
        }
        _ => None,
    })
}

/// The share of the pause in whole percents. An integer is refused, because it may be meant as a percentage or
/// as a share.
fn jitter_percent(settings: &Settings, errors: &mut Errors) -> Option<u32> {
    let takes = "a share of the pause from 0.0 to 1.0 with at most two decimals: `jitter = 0.2`";
    settings.expression("jitter", takes, errors, |value| match value {
        Expr::Lit(ExprLit { lit: Lit::Float(fraction), .. }) => {
            let fraction: f64 = fraction.base10_parse().ok()?;
            (0..=100).find(|percent| (f64::from(*percent) / 100.0 - fraction).abs() < 1e-9)
        }
        _ => None,
    })
}

fn when(settings: &Settings, block: &Block, errors: &mut Errors) -> Option<When> {
    let takes = format!("the path of a function, `{WORTH}`: `when = is_transient`");
    let path = settings.expression("when", &takes, errors, |value| match value {
        Expr::Path(path) if path.qself.is_none() => Some(path.path.clone()),
        _ => None,
    })?;
    let name = path.get_ident();
    let in_block = block.functions().find(|function| name == Some(&function.sig.ident));
    match (name, in_block) {
        (Some(name), Some(function)) => {
            decides_at_once(&function.sig, errors);
            Some(When::InBlock(name.clone()))
        }
        _ => Some(When::Elsewhere(path)),
    }
}

const WORTH: &str = "fn(&Error) -> bool";

/// Checks that it is neither a method nor async. The compiler checks its types.
fn decides_at_once(sig: &Signature, errors: &mut Errors) {
    let name = &sig.ident;
    let write = format!("write `fn {name}(error: &Error) -> bool`");
    if let Some(asyncness) = &sig.asyncness {
        errors.at(asyncness, format!("`{name}` decides at once, so it cannot be `async`; {write}"));
    }
    if let Some(receiver) = sig.receiver() {
        errors.at(receiver, format!("`{name}` sees nothing but the error; {write}"));
    }
}

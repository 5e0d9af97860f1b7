//! The limits of a saga: `concurrency`, `serial`, `rate` and `queue`.

use std::time::Duration;

use proc_macro2::TokenStream;
use syn::parse::{Parse, ParseStream, Parser};
use syn::{Expr, ExprLit, Ident, Lit, LitInt, LitStr, ReceiverKind, Token};

use super::parse::{Block, Function};
use crate::duration;
use crate::errors::Errors;
use crate::settings::Settings;

/// The message for a limit of zero.
const NONE_BEGINS: &str = "no run would ever begin; write 1 or more, or pause the saga";

#[derive(Default)]
pub(super) struct Limits {
    pub(super) concurrency: Option<Limit<u32>>,
    /// Runs are executed one after the other, each until its end; with or without a key.
    pub(super) serial: Option<Option<Key>>,
    pub(super) rate: Option<Limit<Rate>>,
    /// How many runs may wait for a worker when a message is launched.
    pub(super) queue: Option<u32>,
}

pub(super) struct Limit<T> {
    pub(super) most: T,
    pub(super) by: Option<Key>,
}

pub(super) struct Rate {
    pub(super) most: u32,
    pub(super) period_ms: u64,
}

pub(super) enum Key {
    Field(Ident),
    Function(Ident),
}

impl Key {
    pub(super) fn name(&self) -> &Ident {
        match self {
            Self::Field(name) | Self::Function(name) => name,
        }
    }
}

impl Limits {
    pub(super) fn by(&self) -> Option<&Key> {
        let concurrency = self.concurrency.as_ref().and_then(|limit| limit.by.as_ref());
        let serial = self.serial.as_ref().and_then(Option::as_ref);
        concurrency.or(serial).or_else(|| self.rate.as_ref()?.by.as_ref())
    }
}

pub(super) fn read(settings: &Settings, block: &Block, errors: &mut Errors) -> Limits {
    let concurrency = match settings.is_nested("concurrency") {
        true => concurrency_by_key(settings, block, errors),
        false => concurrency(settings, errors).map(|most| Limit { most, by: None }),
    };
    let serial = serial(settings, block, errors);
    let rate = rate(settings, block, errors);
    if serial.is_some() {
        refuse_beside_serial(settings, rate.as_ref(), errors);
    }
    let keys =
        [concurrency.as_ref().and_then(|it| it.by.as_ref()), rate.as_ref().and_then(|it| it.by.as_ref())];
    if let [Some(first), Some(second)] = keys.map(|key| key.map(Key::name))
        && first != second
    {
        errors.at(second, format!("the limits of a saga have one key; write `by = {first}` here, too"));
    }
    Limits { concurrency, serial, rate, queue: queue(settings, errors) }
}

/// `concurrency = 10`.
fn concurrency(settings: &Settings, errors: &mut Errors) -> Option<u32> {
    let takes = "the number of runs that are executed at once: `concurrency = 10`";
    let written = settings.expression("concurrency", takes, errors, |value| match value {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => Some(number.clone()),
        _ => None,
    })?;
    errors.record(number(&written))
}

/// `concurrency(1, by = customer)`.
fn concurrency_by_key(settings: &Settings, block: &Block, errors: &mut Errors) -> Option<Limit<u32>> {
    let example = "concurrency(1, by = customer)";
    let tokens = settings.tokens("concurrency", example, errors)?;
    let parser = first_and_rest(format!("write the number of runs first: `{example}`"));
    let (most, by) = errors.record(parser.parse2(tokens))?;
    let most = errors.record(number(&most));
    let settings_of_key = Settings::read("concurrency", &["by"], by, errors);
    if settings_of_key.key("by").is_none() {
        let message = "write `concurrency = 10` for a limit of the saga, or \
                       `concurrency(1, by = customer)` for one of each key";
        errors.at(settings.key("concurrency")?, message);
        return None;
    }
    let by = key(&settings_of_key, block, errors)?;
    Some(Limit { most: most?, by: Some(by) })
}

/// `serial`, `serial(by = customer)`.
fn serial(settings: &Settings, block: &Block, errors: &mut Errors) -> Option<Option<Key>> {
    if !settings.is_nested("serial") {
        return settings.flag("serial", errors).then_some(None);
    }
    let tokens = settings.tokens("serial", "serial(by = customer)", errors)?;
    let settings_of_key = Settings::read("serial", &["by"], tokens, errors);
    if settings_of_key.key("by").is_none() {
        let message =
            "write `serial` for all runs of the saga, or `serial(by = customer)` for those of each key";
        errors.at(settings.key("serial")?, message);
        return None;
    }
    Some(Some(key(&settings_of_key, block, errors)?))
}

/// Refuses limits that say the same as `serial`, or could have a run wait that has begun.
fn refuse_beside_serial(settings: &Settings, rate: Option<&Limit<Rate>>, errors: &mut Errors) {
    if let Some(key) = settings.key("concurrency") {
        errors.at(key, "`serial` has one run at a time, until its end; remove one of the two");
    }
    if let (Some(key), Some(Limit { by: Some(_), .. })) = (settings.key("rate"), rate) {
        errors.at(key, "beside `serial` a rate is one of the saga; remove `by` here");
    }
}

/// `rate("100/s")`, `rate("100/s", by = customer)`.
fn rate(settings: &Settings, block: &Block, errors: &mut Errors) -> Option<Limit<Rate>> {
    let example = "rate(\"100/s\")";
    let tokens = settings.tokens("rate", example, errors)?;
    let missing = format!("write the number of runs and a time first: `{example}`");
    if tokens.is_empty() {
        errors.at(settings.key("rate")?, missing);
        return None;
    }
    let parser = first_and_rest(missing);
    let (most, by) = errors.record(parser.parse2(tokens))?;
    let most = errors.record(runs_per_time(&most));
    let settings_of_key = Settings::read("rate", &["by"], by, errors);
    let by = match settings_of_key.key("by") {
        None => None,
        Some(_) => Some(key(&settings_of_key, block, errors)?),
    };
    Some(Limit { most: most?, by })
}

/// `queue = 10_000`.
fn queue(settings: &Settings, errors: &mut Errors) -> Option<u32> {
    let takes = "the number of runs that may wait for a worker: `queue = 10_000`";
    let written = settings.expression("queue", takes, errors, |value| match value {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => Some(number.clone()),
        _ => None,
    })?;
    let why = match written.base10_parse() {
        Ok(0) => "no launch would ever be accepted; write 1 or more, or pause the saga",
        Ok(number @ 1..=QUEUE_MAX) => return Some(number),
        _ => "waiting runs are counted up to 100000; write that or less, or remove this",
    };
    errors.at(&written, why);
    None
}

/// Refuses the limit of a queue of a saga whose messages are accepted always.
pub(super) fn refuse_queue(settings: &Settings, is_scheduled: bool, is_joining: bool, errors: &mut Errors) {
    let Some(key) = settings.key("queue") else { return };
    if is_scheduled {
        errors.at(key, "ticks of a schedule are always accepted, so `queue` has no effect; remove it");
    } else if is_joining {
        errors.at(
            key,
            "joined messages are always accepted, so `queue` has no effect; remove it, or limit the sagas that launch them",
        );
    }
}

/// Parses the limit in front, and the tokens behind the comma.
fn first_and_rest<T: Parse>(missing: String) -> impl Parser<Output = (T, TokenStream)> {
    move |input: ParseStream<'_>| {
        let first = input.parse().map_err(|error| syn::Error::new(error.span(), &missing))?;
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
        Ok((first, input.parse()?))
    }
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

/// The longest queue that is counted: the runtime has the same.
const QUEUE_MAX: u32 = 100_000;

fn number(written: &LitInt) -> syn::Result<u32> {
    let why = match written.base10_parse() {
        Ok(0) => NONE_BEGINS,
        Ok(number) if i32::try_from(number).is_ok() => return Ok(number),
        _ => "at most 2147483647 runs are executed at once; write less, or remove this",
    };
    Err(syn::Error::new(written.span(), why))
}

/// `"100/s"`, `"5/10 minutes"`.
fn runs_per_time(written: &LitStr) -> syn::Result<Rate> {
    let (most, period) = read_rate(&written.value()).map_err(|why| syn::Error::new(written.span(), why))?;
    Ok(Rate { most, period_ms: u64::try_from(period.as_millis()).unwrap_or(u64::MAX) })
}

fn read_rate(text: &str) -> Result<(u32, Duration), String> {
    let no_rate =
        || format!("{text:?} is no rate; write a number and a time, as in `\"100/s\"` or `\"5/10 minutes\"`");
    let (number, period) = text.split_once('/').ok_or_else(no_rate)?;
    let most = match number.parse::<u32>() {
        Ok(0) => return Err(NONE_BEGINS.into()),
        Ok(most) if i32::try_from(most).is_ok() => most,
        _ => return Err(no_rate()),
    };
    let period = if period.starts_with(|first: char| first.is_ascii_digit()) {
        period.into()
    } else {
        format!("1{period}")
    };
    Ok((most, duration::read(&period).map_err(|_| no_rate())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_a_time_make_a_rate() {
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        assert_eq!(read_rate("100/s"), Ok((100, s(1))));
        assert_eq!(read_rate("20/minute"), Ok((20, s(60))));
        assert_eq!(read_rate("5/10 minutes"), Ok((5, s(600))));
        assert_eq!(read_rate("1/250ms"), Ok((1, ms(250))));
        for text in
            ["", "100", "/s", "100/", "0/s", "-1/s", "1.5/s", "100 / s", "100/0s", "1/s/s", "3000000000/s"]
        {
            assert!(read_rate(text).is_err(), "{text}");
        }
    }
}

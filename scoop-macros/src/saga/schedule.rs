//! `#[saga(every = "1h")]` and the other settings of a schedule.

#[cfg(feature = "cron")]
mod cron;
#[cfg(any(test, not(feature = "cron")))]
mod no_cron;

use std::time::Duration;

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Ident, LitStr, Type};

#[cfg(feature = "cron")]
use self::cron::times;
#[cfg(not(feature = "cron"))]
use self::no_cron::times;
use super::types::is_named;
use crate::duration;
use crate::errors::Errors;
use crate::names::did_you_mean;
use crate::settings::Settings;

/// The settings of `#[saga]`: its names, its limits, the strategy of its launches, its pin, and its schedule.
pub(super) const KEYS: [&str; 13] = [
    "name",
    "was",
    "concurrency",
    "serial",
    "rate",
    "queue",
    "wait",
    "pin",
    "every",
    "cron",
    "zone",
    "missed",
    "overlap",
];

/// The prefix of the topic of a saga's own ticks. The name of the saga follows.
const TOPIC_PREFIX: &str = "ticks.";

pub(super) const TOPIC_BYTES_MAX: usize = 63;

/// The sensible periods. Beyond them the number or the unit is mistyped.
const EVERY: [(Duration, &str); 2] =
    [(Duration::from_millis(10), "10ms"), (Duration::from_secs(3650 * 86_400), "3650d")];

pub(super) struct Schedule {
    recurrence: Recurrence,
    missed: Option<&'static str>,
    overlap: Option<&'static str>,
}

enum Recurrence {
    Every(Duration),
    #[cfg_attr(not(feature = "cron"), expect(dead_code, reason = "it is refused"))]
    Cron {
        expression: String,
        zone: String,
    },
}

pub(super) fn read(settings: &Settings, errors: &mut Errors) -> Option<Schedule> {
    let [every, cron, zone, missed, overlap] =
        ["every", "cron", "zone", "missed", "overlap"].map(|key| settings.text(key, errors));
    if every.is_none() && cron.is_none() {
        let lone = [("zone", &zone), ("missed", &missed), ("overlap", &overlap)];
        for (key, literal) in lone.into_iter().filter_map(|(key, it)| Some((key, it.as_ref()?))) {
            let hint = "write `every = \"1h\"` or `cron = \"0 3 * * *\"`, or remove this";
            errors.at(literal, format!("`{key}` is about a schedule, and this saga has none; {hint}"));
        }
    }
    let recurrence = recurrence(every, cron, zone, errors);
    let missed = missed.and_then(|it| errors.record(one_of("missed", &it, &["skip", "once", "all"])));
    let overlap_is = overlap.as_ref().and_then(|it| errors.record(one_of("overlap", it, &["allow", "skip"])));
    let recurrence = recurrence?;
    if let (Some("all"), Some("skip"), Some(overlap)) = (missed, overlap_is, overlap) {
        let why = "`missed = \"all\"` starts several runs at once, which this would let go";
        errors.at(overlap, format!("{why}; remove one of them"));
    }
    Some(Schedule { recurrence, missed, overlap: overlap_is })
}

fn recurrence(
    every: Option<LitStr>,
    cron: Option<LitStr>,
    zone: Option<LitStr>,
    errors: &mut Errors,
) -> Option<Recurrence> {
    let Some(every) = every else {
        return times(&cron?, zone.as_ref(), errors);
    };
    if let Some(cron) = cron {
        errors.at(cron, "a saga has one schedule, and this one has `every` already; remove one of them");
    } else if let Some(zone) = zone {
        errors.at(zone, "`every` goes by the time that passes, which has no zone; remove this");
    }
    errors.record(period(&every)).map(Recurrence::Every)
}

fn period(literal: &LitStr) -> syn::Result<Duration> {
    let every = duration::parse(literal)?;
    let [(min, least), (max, most)] = EVERY;
    let why = match every {
        every if every < min => {
            format!("a saga cannot run more often than every `{least}`; write that or longer")
        }
        every if every > max => {
            format!("a saga that runs less often than every `{most}` never does; write that or shorter")
        }
        every => return Ok(every),
    };
    Err(syn::Error::new(literal.span(), why))
}

pub(super) fn one_of(key: &str, literal: &LitStr, known: &[&'static str]) -> syn::Result<&'static str> {
    let value = literal.value();
    known.iter().find(|it| **it == value).copied().ok_or_else(|| {
        let meant = did_you_mean(&value, known.iter().copied());
        let quoted: Vec<_> = known.iter().map(|it| format!("`\"{it}\"`")).collect();
        let quoted = quoted.join(", ");
        syn::Error::new(literal.span(), format!("`{key}` is one of {quoted}{meant}"))
    })
}

/// The topic of the ticks of the saga with this stored name. `written` is that name, if the user gave one.
pub(super) fn topic(name: &str, written: Option<&LitStr>, ident: &Ident, errors: &mut Errors) -> String {
    let topic = format!("{TOPIC_PREFIX}{name}");
    if topic.len() > TOPIC_BYTES_MAX {
        let max = TOPIC_BYTES_MAX - TOPIC_PREFIX.len();
        let why = format!(
            "a saga with a schedule has a name of {max} bytes at most, as the topic of its ticks has \
             {TOPIC_BYTES_MAX}; this one has {}",
            name.len()
        );
        match written {
            Some(literal) => errors.at(literal, why),
            None => errors.at(ident, format!("{why}; write one: `name = \"..\"`")),
        }
    }
    topic
}

pub(super) fn constant(schedule: &Schedule, message: &Type) -> TokenStream {
    let recurrence = match &schedule.recurrence {
        Recurrence::Every(every) => {
            let ms = u64::try_from(every.as_millis()).unwrap_or(u64::MAX);
            quote!(every(::core::time::Duration::from_millis(#ms)))
        }
        Recurrence::Cron { expression, zone } => quote!(cron(#expression, #zone)),
    };
    let missed = schedule.missed.map(|missed| match missed {
        "skip" => quote!(.missed(::scoop::Missed::Skip)),
        "all" => quote!(.missed(::scoop::Missed::All)),
        _ => quote!(.missed(::scoop::Missed::Once)),
    });
    let overlap = schedule.overlap.map(|overlap| match overlap {
        "skip" => quote!(.overlap(::scoop::Overlap::Skip)),
        _ => quote!(.overlap(::scoop::Overlap::Allow)),
    });
    let schedule = quote!(::scoop::Schedule::#recurrence #missed #overlap);
    quote! {
        const SCHEDULE: ::core::option::Option<::scoop::Schedule> =
            ::core::option::Option::Some(::scoop::__private::scheduled::<#message>(#schedule));
    }
}

/// For a saga without a schedule, the check that programs launch its message. Generated only for the name
/// `Tick`; the compiler knows whether the type is that one.
pub(super) fn launched_by_hand(message: &Type) -> Option<TokenStream> {
    let why = "no program launches a `Tick`; say when the saga runs, as in `#[saga(every = \"1h\")]`";
    let ask = quote_spanned! {message.span()=>
        ::core::assert!(::scoop::__private::LaunchProbe::<#message>::IS_USER_LAUNCHED, #why);
    };
    is_named(message, "Tick").then(|| {
        quote! {
            const _: () = {
                #[allow(unused_imports)]
                use ::scoop::__private::UserLaunched as _;
                #ask
            };
        }
    })
}

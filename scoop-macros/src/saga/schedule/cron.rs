//! Checks of cron expressions and time zones, by the crate that the engine uses: every schedule that compiles is due
//! some time.

use scoop_cron::{Cron, CronError, similar_zone};
use syn::LitStr;

use super::Recurrence;
use crate::errors::Errors;

/// The times of an expression in a zone. Each of the two can have a mistake.
pub(super) fn times(cron: &LitStr, zone: Option<&LitStr>, errors: &mut Errors) -> Option<Recurrence> {
    let expression = cron.value();
    let checked = Cron::new(&expression, "UTC").map_err(|why| syn::Error::new(cron.span(), why));
    let checked = errors.record(checked);
    let zone = match zone {
        None => Some("UTC".to_owned()),
        Some(zone) => errors.record(known_zone(zone)),
    };
    checked.and(zone).map(|zone| Recurrence::Cron { expression, zone })
}

fn known_zone(literal: &LitStr) -> syn::Result<String> {
    let zone = literal.value();
    match Cron::new("* * * * *", &zone) {
        Err(CronError::Zone) => {
            let hint = match similar_zone(&zone) {
                Some(similar) => format!("did you mean `{similar}`?"),
                None => "write a name of the IANA database, like `Europe/Prague`".to_owned(),
            };
            let why = format!("there is no time zone `{zone}`; {hint}");
            Err(syn::Error::new(literal.span(), why))
        }
        _ => Ok(zone),
    }
}

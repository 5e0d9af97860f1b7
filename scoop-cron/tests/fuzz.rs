//! Fuzz tests of cron expressions and zones, which come from attributes and from a table that other programs write,
//! too. No input panics, and a due time is later than the given time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proptest::prelude::*;
use proptest::sample::select;
use scoop_cron::{Cron, similar_zone};

const ZONES: [&str; 7] = [
    "UTC",
    "Europe/Prague",
    "America/New_York",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Asia/Kathmandu",
    "Africa/Casablanca",
];

const ODD_FIELDS: [&str; 12] =
    ["L", "5L", "15W", "LW", "1#2", "5#6", "MON", "JAN-DEC", "?", "FRI-MON", "*/0", "1/99999999999"];

/// A valid field, or a nearly valid one.
fn field() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just("*".to_owned()),
        3 => (0u32..70).prop_map(|number| number.to_string()),
        1 => (0u32..70, 0u32..70).prop_map(|(first, last)| format!("{first}-{last}")),
        1 => (0u32..40, 0u32..40).prop_map(|(one, other)| format!("{one},{other}")),
        1 => (0u32..70).prop_map(|step| format!("*/{step}")),
        1 => select(&ODD_FIELDS[..]).prop_map(str::to_owned),
        1 => "[0-9*,/#?LWA-Z-]{1,6}",
        1 => ".{1,3}",
    ]
}

fn expression() -> impl Strategy<Value = String> {
    let fields = proptest::collection::vec(field(), 5..=6).prop_map(|fields| fields.join(" "));
    prop_oneof![9 => fields, 1 => ".{0,20}", 1 => "[0-9*,/ \t-]{0,30}"]
}

fn zone() -> impl Strategy<Value = String> {
    let known = select(&ZONES[..]).prop_map(str::to_owned);
    prop_oneof![6 => known, 1 => ".{0,10}", 1 => "[A-Za-z]{3,8}/[A-Za-z_]{3,8}"]
}

fn time() -> impl Strategy<Value = SystemTime> {
    let these_days = (0..4_102_444_800u64).prop_map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds));
    let any = (any::<bool>(), 0..1u64 << 40, 0..1_000_000_000u32);
    let any = any.prop_filter_map("a time", |(before, seconds, nanos)| {
        let since = Duration::new(seconds, nanos);
        if before { UNIX_EPOCH.checked_sub(since) } else { UNIX_EPOCH.checked_add(since) }
    });
    prop_oneof![3 => these_days, 1 => any]
}

mod fuzz {
    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn next_due_time_is_later(expression in expression(), zone in zone(), after in time()) {
            let cron = match Cron::new(&expression, &zone) {
                Ok(cron) => cron,
                Err(error) => {
                    prop_assert!(!error.to_string().is_empty());
                    return Ok(());
                }
            };
            let mut latest = after;
            for _ in 0..3 {
                let Some(next) = cron.next_after(latest) else {
                    return Ok(());
                };
                prop_assert!(next > latest);
                // The result is the same for any time between.
                let between = latest + next.duration_since(latest).expect("it is later") / 2;
                prop_assert_eq!(cron.next_after(between), Some(next));
                latest = next;
            }
        }

        #[test]
        fn known_zone_has_a_similar_name(name in zone()) {
            let known = |name: &str| Cron::new("0 0 * * *", name).is_ok();
            let similar = similar_zone(&name);
            prop_assert!(similar.is_some() || !known(&name));
            prop_assert!(similar.is_none_or(|similar| known(&similar)));
        }
    }
}

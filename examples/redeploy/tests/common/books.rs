//! Checks that every step of every order took effect once and in its order.

use std::collections::{BTreeMap, BTreeSet};

use scoop::prelude::*;
use sqlx::PgPool;
use uuid::Uuid;

/// Each row is committed together with the step that did it.
pub(crate) const TABLE: &str =
    "CREATE TABLE effect (id bigserial PRIMARY KEY, number bigint NOT NULL, step text NOT NULL,
    build text NOT NULL, key uuid NOT NULL)";

struct Effect {
    step: String,
    build: String,
}

/// What the effects of all orders are.
pub(crate) struct Books {
    /// Whether every step of every order took effect once and in its order.
    pub(crate) are_right: bool,
    /// The number of orders that went through both builds.
    pub(crate) changed: usize,
}

/// Counts and prints the effects of all orders.
pub(crate) async fn check(pool: &PgPool, placed: usize) -> Result<Books> {
    let rows: Vec<(i64, String, String, Uuid)> =
        sqlx::query_as("SELECT number, step, build, key FROM effect ORDER BY id").fetch_all(pool).await?;
    let keys: BTreeSet<_> = rows.iter().map(|(.., key)| *key).collect();
    let keys_repeated = rows.len() - keys.len();
    let mut orders: BTreeMap<i64, Vec<Effect>> = BTreeMap::new();
    for (number, step, build, _) in rows {
        orders.entry(number).or_default().push(Effect { step, build });
    }
    let mut steps: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut wrong = 0;
    for (number, effects) in &orders {
        for effect in effects {
            *steps.entry((&effect.step, &effect.build)).or_default() += 1;
        }
        if !is_right(effects) {
            let done: Vec<_> = effects.iter().map(|it| format!("{}@{}", it.step, it.build)).collect();
            println!("order {number} is wrong: {}", done.join(" "));
            wrong += 1;
        }
    }
    println!("\n{:10} {:>8} {:>8} {:>12}", "step", "before", "after", "before again");
    for step in ["reserve", "pick", "charge", "inspect", "ship", "deliver", "close"] {
        let by = |build| steps.get(&(step, build)).copied().unwrap_or(0);
        println!("{step:10} {:8} {:8} {:12}", by("before"), by("after"), by("before again"));
    }
    let changed = orders.values().filter(|effects| changed_builds(effects)).count();
    let missing = placed - orders.len();
    println!(
        "\n{placed} orders, {changed} of them went through both builds; {missing} missing, {wrong} wrong"
    );
    println!("{keys_repeated} idempotency keys used twice");
    Ok(Books { are_right: missing == 0 && wrong == 0 && keys_repeated == 0, changed })
}

/// Whether both builds have run steps of the saga that differs.
fn changed_builds(effects: &[Effect]) -> bool {
    let own = effects.iter().filter(|effect| !["pick", "deliver"].contains(&&*effect.step));
    own.map(|effect| effect.build == "after").collect::<BTreeSet<_>>().len() > 1
}

/// Each step ran once and in order. An order is inspected exactly if `after` decided which step follows its `charge`.
///
/// `after` ships what was inspected. The first start of `before` ships nothing that was inspected: `after` is newer and
/// refuses nothing. Its second start is the newest, and goes on from `inspect`, which it does not have, to `ship`.
fn is_right(effects: &[Effect]) -> bool {
    let steps: Vec<_> = effects.iter().map(|effect| &*effect.step).collect();
    let shipped_by = effects.iter().find(|effect| effect.step == "ship").map(|effect| &*effect.build);
    let inspected_by = effects.iter().find(|effect| effect.step == "inspect").map(|effect| &*effect.build);
    match (shipped_by, inspected_by) {
        (Some("before" | "before again"), None) => {
            steps == ["reserve", "pick", "pick", "charge", "ship", "deliver", "close"]
        }
        (Some("after" | "before again"), Some("after")) => {
            steps == ["reserve", "pick", "pick", "charge", "inspect", "ship", "deliver", "close"]
        }
        _ => false,
    }
}

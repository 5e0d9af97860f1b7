//! Runs by fields of their messages: lists, counts, requests for many, and one hierarchy.

use std::time::Duration;

use expect_test::expect;
use scoop::prelude::*;
use scoop::tree::{RunState, Tree};
use scoop_test_support::Ends as _;

use crate::support::{Plan, Shop};

/// It sleeps if it is to wait.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "shop.parcels", find_by(parcel, customer))]
struct Parcel {
    parcel: u32,
    customer: String,
    waits: bool,
}

#[derive(Default)]
struct Parcels;

#[saga(name = "parcels")]
#[subscribes(Parcel)]
impl Parcels {
    #[step]
    async fn send(&self, scope: &mut Scope<'_>, parcel: &Parcel) -> Result<()> {
        if parcel.waits {
            scope.sleep(Duration::from_secs(3_600)).await?;
        }
        Ok(())
    }

    #[step]
    async fn arrive(&self, _: &mut Scope<'_>, _: &Parcel) -> Result<()> {
        Ok(())
    }
}

/// A shop with two parcels of Ada, of which one waits, and one of Bob.
async fn shop() -> Shop {
    let shop = Shop::with(|scoop| scoop.only::<Parcels>()).await;
    for (parcel, customer, waits) in [(7, "Ada", false), (8, "Ada Lovelace", true), (9, "Ada", true)] {
        let parcel = shop.scoop.launch(Parcel { parcel, customer: customer.into(), waits }).await.unwrap();
        let is_there = |tree: &Tree| {
            tree.runs().iter().any(|run| matches!(run.state, RunState::Committed | RunState::Sleeping))
        };
        parcel.comes_to(is_there).await.unwrap();
    }
    shop
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_listed_and_counted_by_fields() {
    let mut shop = shop().await;
    shop.order(1, Plan::Commit).await;
    shop.run(&["runs"]).await.shows(expect![[r#"
        RUN SAGA STATE SINCE ABOUT
        parcel=9 customer=Ada parcels sleeping <time> until <time>
        parcel=8 customer=Ada Lovelace parcels sleeping <time> until <time>
        <id 1> orders committed <time> took <duration>
        parcel=7 customer=Ada parcels committed <time> took <duration>
    "#]]);
    shop.run(&["runs", "--where", "customer=Ada"]).await.shows(expect![[r#"
        RUN SAGA STATE SINCE ABOUT
        parcel=9 customer=Ada parcels sleeping <time> until <time>
        parcel=7 customer=Ada parcels committed <time> took <duration>
    "#]]);
    shop.run(&["runs", "--where", "customer=Ada", "--where", "parcel=9", "--ids"]).await.shows(expect![[
        r#"
            RUN SAGA STATE SINCE ABOUT
            <id 2> parcels sleeping <time> until <time>
        "#
    ]]);
    shop.run(&["runs", "--where", "parcel=7.0", "--json"]).await.shows(expect![[r#"
        {"run":"<id 3>","hierarchy":"<id 4>","parent":null,"handler":"parcels","topic":"shop.parcels","message":"<id 5>","state":"committed","since":"<time>","queued_at":"<time>","began_at":"<time>","queued_ms":<duration>,"took_ms":<duration>,"waits_for":null,"attempts":0,"reason":null,"failure":null,"rolling_back":false,"can_give_up":false,"deadline":null,"wakes_at":null,"awaits":null,"worker":"scoop-rs:<id 6>","step":"arrive","skipped":0,"found_by":{"parcel":"7","customer":"Ada"}}
    "#]]);
    shop.run(&["counts", "--where", "customer=Ada"]).await.shows(expect![[r#"
        SAGA STATE RUNS OLDEST
        parcels sleeping 1 <duration>
        parcels committed 1
        2> 1 unfinished; 1 ended since <time>
    "#]]);
    shop.run(&["runs", "--where", "parcel=10"]).await.shows(expect![[r#"
        2> no such runs
    "#]]);
    shop.run(&["runs", "--where", "parcl=7"]).await.shows(expect![[r#"
        exit 3
        2> error: no message is found by a field `parcl`; did you mean `parcel`?
    "#]]);
    shop.run(&["counts", "--where", "number=7"]).await.shows(expect![[r#"
        exit 3
        2> error: no message is found by a field `number`; there are `customer`, `parcel`
    "#]]);
    shop.run(&["runs", "--where", "parcel"]).await.shows(expect![[r#"
        exit 2
        2> error: invalid value 'parcel' for '--where <FIELD=VALUE>': write a field and its value, such as order=2167
        2> 
        2> For more information, try '--help'.
    "#]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn list_by_a_field_goes_on_from_its_end() {
    let mut shop = shop().await;
    let first = shop.run(&["runs", "--where", "customer=Ada", "--limit", "1", "--json"]).await;
    let next = first.field("next");
    let rest = ["runs", "--where", "customer=Ada", "--json", "--after", &next[0]];
    let rest = shop.run(&rest).await;
    assert_eq!((first.field("run").len(), rest.field("run").len(), rest.field("next").len()), (1, 1, 0));
    assert_ne!(first.field("run"), rest.field("run"));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_for_many_choose_by_fields() {
    let mut shop = shop().await;
    shop.run(&["cancel", "--where", "customer=Ada", "--reason", "she left", "--dry-run"]).await.shows(
        expect![[r#"
            RUN SAGA STATE SINCE ABOUT
            parcel=9 customer=Ada parcels sleeping <time> until <time>
            would cancel 1 run: 1 of `parcels` (sleeping)
        "#]],
    );
    shop.run(&["cancel", "--where", "customer=Ada", "--reason", "she left", "--yes"]).await.shows(expect![[
        r#"
            accepted: 1 run
        "#
    ]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn hierarchy_is_shown_by_a_field_that_only_it_has() {
    let mut shop = shop().await;
    shop.run(&["tree", "--where", "parcel=7"]).await.shows(expect![[r#"
        parcels (on shop.parcels): committed
        run <id 1>, took <duration>
        <time> began, by scoop-rs:<id 2>
        <time> + <duration> completed send
        <time> + <duration> completed arrive
        <time> committed
    "#]]);
    shop.run(&["explain", "--where", "customer=Ada"]).await.shows(expect![[r#"
        exit 2
        2> error: several hierarchies are found by that; name one: <id 3>, <id 4>
    "#]]);
    shop.run(&["tree", "--where", "parcel=10"]).await.shows(expect![[r#"
        exit 3
        2> error: no run is found by that
    "#]]);
}

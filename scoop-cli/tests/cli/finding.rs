//! Commands that only read: lists, trees, explanations, counts, events.

use std::collections::BTreeSet;

use expect_test::expect;
use scoop_test_support::eventually;
use sqlx::ConnectOptions as _;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::support::{Order, Plan, Shop, interrupt, program, ran};

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_listed_with_state_and_reason() {
    let mut shop = Shop::open().await;
    shop.order(1, Plan::Commit).await;
    shop.order(2, Plan::Fail("no chairs left".into())).await;
    shop.order(3, Plan::FailToUndo).await;
    shop.unpaid_order(4).await;
    shop.run(&["runs"]).await.shows(expect![[r#"
        RUN SAGA STATE SINCE ABOUT
        <id 1> payments awaiting signal <time> awaits `shop.paid` with key `order 4`
        <id 2> orders waiting <time> waits for children
        <id 3> orders rollback failed <time> waits for an operator; bank-closed: the bank is closed
        <id 4> orders rolled back <time> took <duration>; sold-out: no chairs left
        <id 5> orders committed <time> took <duration>
    "#]]);
    shop.run(&["runs", "--state", "rolled-back", "--json"]).await.shows(expect![[r#"
        {"run":"<id 4>","hierarchy":"<id 6>","parent":null,"handler":"orders","topic":"shop.orders","message":"<id 7>","state":"rolled back","since":"<time>","queued_at":"<time>","began_at":"<time>","queued_ms":<duration>,"took_ms":<duration>,"waits_for":null,"attempts":0,"reason":null,"failure":{"code":"sold-out","headline":"no chairs left","source":"orders[scoop-rs:<id 8>]"},"rolling_back":false,"can_give_up":false,"deadline":null,"wakes_at":null,"awaits":null,"worker":"scoop-rs:<id 8>","step":"Rollback of reserve[0,]","skipped":0,"found_by":{}}
    "#]]);
    shop.run(&["runs", "--waiting-for", "operator"]).await.shows(expect![[r#"
        RUN SAGA STATE SINCE ABOUT
        <id 3> orders rollback failed <time> waits for an operator; bank-closed: the bank is closed
    "#]]);
    shop.run(&["runs", "--failed-with", "sold-out", "--roots", "--topic", "shop.orders", "--since", "1d"])
        .await
        .shows(expect![[r#"
            RUN SAGA STATE SINCE ABOUT
            <id 3> orders rollback failed <time> waits for an operator; bank-closed: the bank is closed
            <id 4> orders rolled back <time> took <duration>; sold-out: no chairs left
        "#]]);
    shop.run(&["runs", "--failed-with", "SoldOut"]).await.shows(expect![[r#"
        exit 3
        2> error: no failure has the code `SoldOut`; did you mean `sold-out`?
    "#]]);
    shop.run(&["runs", "--failed-with", "network"]).await.shows(expect![[r#"
        exit 3
        2> error: no failure has the code `network`; there are `bank-closed`, `sold-out`
    "#]]);
    shop.run(&["runs", "--failed-with", "sold-out", "--handler", "payments"]).await.shows(expect![[r#"
        2> no such runs
    "#]]);
    let failed = shop.run(&["runs", "--waiting-for", "operator", "--json"]).await.field("run").remove(0);
    shop.run(&["retry", &failed, "--yes"]).await;
    let again = ["runs", "--state", "rollback-failed", "--json"];
    eventually("the compensation fails again", async || {
        ran(shop.command(&again), &mut vec![]).await.stdout.contains("the bank is closed")
    })
    .await;
    shop.run(&["runs", "--failed-with", "bank-closed"]).await.shows(expect![[r#"
        RUN SAGA STATE SINCE ABOUT
        <id 3> orders rollback failed <time> waits for an operator; bank-closed: the bank is closed
    "#]]);
    shop.run(&["explain", &failed]).await.shows(expect![[r#"
        Run <id 3> of `orders` waits for an operator, for <duration>: bank-closed: the bank is closed. An operator has to decide: `retry`, `skip` or `resolve` the run <id 3>.

        Fix the cause, then run one of:
        scoop retry <id 3>
        scoop skip <id 3> --reason <why>
        scoop resolve <id 3> --reason <why>
    "#]]);
    let url = shop.db.pool().connect_options().to_url_lossy().to_string();
    let given = ran(program(&["explain", &failed, "--database-url", &url]), &mut vec![]).await;
    assert!(given.stdout.contains(" --reason <why>\n"), "{given:?}");
    assert_eq!(given.stderr, "the commands need these options, too: --database-url\n");
    shop.run(&["tree", &failed]).await.shows(expect![[r#"
        orders (on shop.orders): ROLLBACK FAILED: the bank is closed (because none left)
        run <id 3>, took <duration>
        <time> began, by scoop-rs:<id 8>
        <time> + <duration> completed reserve
        <time> + <duration> began to roll back in pack: none left, at scoop-cli/tests/cli/support.rs:94
        <time> + <duration> rollback failed in reserve: the bank is closed, at scoop-cli/tests/cli/support.rs:87
        <time> retry by scoop-cli
        <time> + <duration> rollback failed in reserve: the bank is closed, at scoop-cli/tests/cli/support.rs:87
    "#]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_listed_by_saga_and_time() {
    let mut shop = Shop::open().await;
    shop.order(1, Plan::Commit).await;
    shop.unpaid_order(2).await;
    for option in ["--handler", "--saga"] {
        shop.run(&["runs", option, "payments", "--count", "7"]).await.shows(expect![[r#"
            RUN SAGA STATE SINCE ABOUT
            <id 1> payments awaiting signal <time> awaits `shop.paid` with key `order 2`
        "#]]);
    }
    shop.run(&["runs", "--until", "0s", "--handler", "payments", "--behind-proxy"]).await.shows(expect![[
        r#"
            RUN SAGA STATE SINCE ABOUT
            <id 1> payments awaiting signal <time> awaits `shop.paid` with key `order 2`
        "#
    ]]);
    shop.run(&["runs", "--until", "1h"]).await.shows(expect![[r#"
        2> no such runs
    "#]]);
    shop.run(&["runs", "--since", "1h", "--until", "0s", "--state", "committed"]).await.shows(expect![[r#"
        RUN SAGA STATE SINCE ABOUT
        <id 2> orders committed <time> took <duration>
    "#]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn list_that_is_cut_off_goes_on_from_its_end() {
    let mut shop = Shop::open().await;
    for number in 1..=3 {
        shop.order(number, Plan::Commit).await;
    }
    let first = shop.run(&["runs", "--limit", "2", "--json"]).await;
    let next = first.field("next");
    let rest = shop.run(&["runs", "--limit", "2", "--json", "--after", &next[0]]).await;
    assert_eq!((first.field("run").len(), rest.field("run").len(), rest.field("next").len()), (2, 1, 0));
    assert!(!first.field("run").contains(&rest.field("run")[0]));
    let people = shop.run(&["runs", "--limit", "2"]).await;
    assert!(people.stderr.ends_with(&format!("--after {}\n", next[0])), "{}", people.stderr);
    shop.run(&["runs", "--after", "somewhere"]).await.shows(expect![[r#"
        exit 2
        2> error: invalid value 'somewhere' for '--after <CURSOR>': "somewhere" is no place in a list of runs; use the place that `scoop runs` writes at its end
        2> 
        2> For more information, try '--help'.
    "#]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn hierarchy_is_shown_by_any_of_its_ids_and_by_its_key() {
    let mut shop = Shop::open().await;
    let order = shop.unpaid_order(7).await;
    let by_key = shop.run(&["tree", "--topic", "shop.orders", "--key", "order 7"]).await;
    by_key.shows(expect![[r#"
        orders (on shop.orders): waiting for 1 of 1 children: payments
        │ run <id 1>
        │ <time> began, by scoop-rs:<id 2>
        │ <time> + <duration> completed reserve
        └─ payments (on shop.payments): awaiting signal shop.paid for order 7 since <time>
        run <id 3>
        <time> began, by scoop-rs:<id 2>
        <time> + <duration> began to await a signal for collect: shop.paid with key order 7
    "#]]);
    let payment = order.tree().await.unwrap().runs()[1].id().to_string();
    for id in [order.id().to_string(), order.message_id().to_string(), payment.clone()] {
        assert_eq!(shop.run(&["tree", &id]).await.stdout.lines().count(), by_key.stdout.lines().count());
    }
    let runs = shop.run(&["tree", &payment, "--json"]).await;
    assert_eq!(runs.field("handler"), ["orders", "payments"]);
    assert_eq!(runs.field("parent")[1], runs.field("run")[0]);
    let cut = shop.run(&["tree", &payment, "--depth", "1", "--json"]).await;
    assert_eq!(cut.field("handler"), ["orders"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn time_line_has_a_bar_for_each_run_and_step() {
    let mut shop = Shop::open().await;
    let order = shop.order(1, Plan::Fail("no chairs left".into())).await.id().to_string();
    let bars = shop.run(&["timeline", &order, "--json"]).await;
    assert_eq!(bars.field("kind"), ["run", "step", "step", "compensation"]);
    assert_eq!(bars.field("name"), ["orders", "reserve", "pack", "reserve"]);
    assert!(bars.field("to").iter().all(|to| to.ends_with('Z')), "{bars:?}");
    // One second from each event to the next.
    shop.db
        .execute(
            "UPDATE scoop.message_event e SET created_at = timestamptz '2026-01-01' + o.nth * interval '1 s'
             FROM (SELECT id, row_number() OVER (ORDER BY created_at) AS nth FROM scoop.message_event) o WHERE o.id = e.id",
        )
        .await;
    shop.run(&["timeline", &order]).await.shows(expect![[r#"
        from <time> to <time>
        RUN, STEP FROM TIME BAR
        orders (rolled back) +<duration> <duration> |========================================|
        reserve +<duration> <duration> |######## |
        pack +<duration> <duration> | ######## |
        undo reserve +<duration> <duration> | <<<<<<<< |
    "#]]);
    let cut = shop.run(&["timeline", &order, "--events", "1"]).await;
    assert!(cut.stdout.contains("orders (rolled back)") && !cut.stdout.contains("reserve"), "{cut:?}");
    assert!(cut.stdout.contains("events are left out") && cut.stdout.contains('~'), "{cut:?}");
    assert!(cut.stderr.contains("events of 1 run were left out: raise --events"), "{cut:?}");
    let runs = shop.run(&["timeline", &order, "--runs-only"]).await;
    assert!(runs.stdout.contains("orders (rolled back)") && !runs.stdout.contains("left out"), "{runs:?}");
    assert_eq!(runs.stderr, "");
    let part = shop.run(&["tree", &order, "--events", "1"]).await;
    assert!(part.stdout.contains("(events are left out: raise --events)"), "{part:?}");
    assert_eq!(part.stderr, "", "the text says it");
    let part = shop.run(&["tree", &order, "--events", "1", "--json"]).await;
    assert_ne!(part.field("events_left_out"), ["0"], "{part:?}");
    shop.db
        .execute(
            "INSERT INTO scoop.intervention (root, run, handler, message_id, kind, source, requested_at)
             SELECT e.cooperation_lineage[1], e.cooperation_lineage[2], e.coroutine_name, e.message_id, 'retry', 'Ada',
                    e.created_at + n * interval '1 s'
             FROM scoop.message_event e, generate_series(1, 5) n
             WHERE e.type = 'SEEN'",
        )
        .await;
    let part = shop.run(&["tree", &order, "--events", "1"]).await;
    assert!(part.stdout.contains("(3 interventions are left out: raise --events)"), "{part:?}");
    assert_eq!(part.stderr, "", "the text says it");
    let part = shop.run(&["tree", &order, "--events", "1", "--json"]).await;
    assert_eq!(part.field("interventions_left_out"), ["3"], "{part:?}");
    let cut = shop.run(&["timeline", &order, "--events", "1"]).await;
    assert!(cut.stdout.contains("interventions are left out"), "{cut:?}");
    assert!(cut.stderr.contains("interventions on 1 run were left out: raise --events"), "{cut:?}");
    let unpaid = shop.unpaid_order(2).await.id().to_string();
    let runs = shop.run(&["timeline", &unpaid, "--runs-only", "--json"]).await;
    assert_eq!(
        (runs.field("name"), runs.field("to")),
        (vec!["orders".into(), "payments".into()], vec!["null".into(); 2])
    );
    assert!(shop.run(&["timeline", &unpaid]).await.stdout.contains("open"));
    let bars = shop.run(&["timeline", &unpaid, "--json"]).await;
    assert_eq!(bars.field("kind"), ["run", "step", "wait", "run", "wait"]);
    assert_eq!(bars.field("name"), ["orders", "reserve", "reserve", "payments", "collect"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn run_whose_events_cannot_be_read_has_a_line_on_the_scale_of_time() {
    let mut shop = Shop::open().await;
    let order = shop.order(1, Plan::Fail("no chairs left".into())).await.id().to_string();
    // No program can read such a number.
    let forge = r#"UPDATE scoop.message_event SET wait = '{"until": 1e400}' WHERE type = 'SEEN'"#;
    shop.db.execute(forge).await;
    for command in ["tree", "timeline"] {
        let people = shop.run(&[command, &order]).await;
        assert!(people.stdout.contains("(unreadable: a run of `orders` of message "), "{people:?}");
        let lines = shop.run(&[command, &order, "--json"]).await;
        let reasons = lines.field("unreadable");
        assert!(reasons.len() == 1 && reasons[0].starts_with("a run of `orders` of message "), "{lines:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_that_was_cancelled_is_drawn_as_a_wait() {
    let mut shop = Shop::open().await;
    let order = shop.unpaid_order(2).await;
    let id = order.id().to_string();
    shop.scoop.cancel(order.id(), "the customer left").await.unwrap();
    order.wait().await.unwrap();
    let bars = shop.run(&["timeline", &id, "--json"]).await;
    let payment: Vec<_> = bars.field("handler").iter().map(|handler| handler == "payments").collect();
    let of_payment = |field| {
        let bars = bars.field(field).into_iter().zip(&payment);
        bars.filter_map(|(value, is_payment)| is_payment.then_some(value)).collect::<Vec<_>>()
    };
    assert_eq!(of_payment("kind"), ["run", "wait", "wait"], "{bars:?}");
    let drawn = shop.run(&["timeline", &id]).await.stdout;
    assert!(
        drawn.contains("wait for the signal of collect") && drawn.contains("gave up in collect"),
        "{drawn}"
    );
    assert!(!drawn.contains("undo collect"), "{drawn}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_is_explained() {
    let mut shop = Shop::open().await;
    let order = shop.unpaid_order(7).await;
    shop.run(&["explain", &order.id().to_string()]).await.shows(expect![[r#"
        Run <id 1> of `orders` waits for 1 child, for <duration>. Below it, run <id 2> of `payments` awaits the signal `shop.paid` with the key `order 7`. It goes on when all its children have ended.
    "#]]);
    let payment = order.tree().await.unwrap().runs()[1].id().to_string();
    shop.run(&["explain", &payment, "--json"]).await.shows(expect![[r#"
        {"run":"<id 2>","hierarchy":"<id 3>","parent":"<id 1>","handler":"payments","topic":"shop.payments","message":"<id 4>","state":"awaiting signal","since":"<time>","queued_at":"<time>","began_at":"<time>","queued_ms":<duration>,"took_ms":null,"waits_for":"signal","attempts":0,"reason":null,"failure":null,"rolling_back":false,"can_give_up":true,"deadline":null,"wakes_at":null,"awaits":{"name":"shop.paid","key":"order 7"},"worker":null,"step":"collect (waiting for signal)","skipped":0,"found_by":{},"waiting":{"for":"signal","signal":{"name":"shop.paid","key":"order 7"},"until":null},"priority":"normal","giving_up":false,"cancelled":false,"pauses":[],"join":null,"text":"Run <id 2> of `payments` awaits the signal `shop.paid` with the key `order 7`, for <duration>. It goes on when the signal `shop.paid` is sent with the key `order 7`.","ends_by":"It goes on when the signal `shop.paid` is sent with the key `order 7`.","read_at":"<time>","commands":[]}
    "#]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_counted_by_saga_and_state() {
    let mut shop = Shop::open().await;
    shop.order(1, Plan::Commit).await;
    shop.order(2, Plan::Commit).await;
    shop.unpaid_order(3).await;
    shop.order(4, Plan::FailToUndo).await;
    shop.run(&["counts"]).await.shows(expect![[r#"
        SAGA STATE RUNS OLDEST
        orders rollback failed 1 <duration>
        orders waiting 1 <duration>
        payments awaiting signal 1 <duration>
        orders committed 2
        2> 3 unfinished; 2 ended since <time>
    "#]]);
    shop.run(&["counts", "--json", "--since", "2h"]).await.shows(expect![[r#"
        {"handler":"orders","state":"rollback failed","count":1,"capped":false,"oldest":"<time>","ended":false}
        {"handler":"orders","state":"waiting","count":1,"capped":false,"oldest":"<time>","ended":false}
        {"handler":"payments","state":"awaiting signal","count":1,"capped":false,"oldest":"<time>","ended":false}
        {"handler":"orders","state":"committed","count":2,"capped":false,"oldest":null,"ended":true}
    "#]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_end_at_a_limit_unless_they_are_to_be_exact() {
    let mut shop = Shop::open().await;
    shop.unpaid_order(1).await;
    shop.scoop.shutdown().await.unwrap();
    shop.db
        .execute(
            "INSERT INTO scoop.run
             SELECT copy.*
             FROM scoop.run r
             CROSS JOIN LATERAL (SELECT gen_random_uuid() AS id, n FROM generate_series(1, 10100) n) new
             CROSS JOIN LATERAL jsonb_populate_record(r, jsonb_build_object(
                 'id', new.id, 'message_id', new.id, 'lineage', to_jsonb(r.lineage[:2] || new.id))) copy
             WHERE r.handler = 'payments'",
        )
        .await;
    shop.run(&["counts"]).await.shows(expect![[r#"
        SAGA STATE RUNS OLDEST
        orders waiting 1 <duration>
        payments awaiting signal 10000+ <duration>
        2> 10001+ unfinished; 0 ended since <time>
    "#]]);
    shop.run(&["counts", "--exact"]).await.shows(expect![[r#"
        SAGA STATE RUNS OLDEST
        orders waiting 1 <duration>
        payments awaiting signal 10101 <duration>
        2> 10102 unfinished; 0 ended since <time>
    "#]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_followed_from_a_place() {
    let mut shop = Shop::open().await;
    // The place: of a first call, which ends with the first event that it sees.
    let first = shop.command(&["events", "--follow", "--count", "1", "--json"]).spawn().unwrap();
    let mut first = tokio::spawn(first.wait_with_output());
    let mut number = 0;
    let first = loop {
        number += 1;
        shop.order(number, Plan::Commit).await;
        if first.is_finished() {
            break (&mut first).await.unwrap().unwrap();
        }
    };
    let last: serde_json::Value =
        serde_json::from_str(String::from_utf8(first.stdout).unwrap().lines().last().unwrap()).unwrap();
    let place = last["next"].as_str().unwrap();
    let order = shop.order(1_000, Plan::Fail("none".into())).await.id().to_string();
    let follow = ["events", "--after", place, "--hierarchy", &order, "--count", "6"];
    shop.run(&follow).await.shows(expect![[r#"
        <time> <id 1> EMITTED
        <time> <id 1> SEEN orders (<id 2>)
        <time> <id 1> SUSPENDED orders (<id 2>) reserve
        <time> <id 1> ROLLING_BACK orders (<id 2>) pack: sold-out: none
        <time> <id 1> SUSPENDED orders (<id 2>) Rollback of reserve[0,] (rolling back child scopes)
        <time> <id 1> SUSPENDED orders (<id 2>) Rollback of reserve[0,]
        2> to go on from here: --after <place>
    "#]]);
    let json = shop.run(&[&follow[..], &["--json"]].concat()).await;
    assert_eq!(json.field("kind").len(), 6);
    assert_eq!(json.field("next").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_come_later_are_followed_until_the_count_is_reached() {
    let mut shop = Shop::open().await;
    let place = shop.run(&["events", "--json"]).await.field("next").remove(0);
    let follow = ["events", "--follow", "--after", &place, "--handler", "orders", "--count", "6", "--json"];
    let follower = shop.command(&follow).spawn().unwrap();
    shop.order(1, Plan::Commit).await;
    // The first two of its events are the last two.
    shop.order(2, Plan::Commit).await;
    let followed = shop.ended(follower).await;
    assert_eq!(followed.code, 0);
    let kinds = ["SEEN", "SUSPENDED", "SUSPENDED", "COMMITTED", "SEEN", "SUSPENDED"];
    assert_eq!(followed.field("kind"), kinds);
    assert_eq!(followed.field("next").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_the_last_hour_are_shown_without_follow() {
    let mut shop = Shop::open().await;
    shop.run(&["events"]).await.shows(expect![[r#"
        2> to go on from here: --after <place>
    "#]]);
    shop.order(1, Plan::Commit).await;
    shop.run(&["events", "--handler", "orders"]).await.shows(expect![[r#"
        <time> <id 1> SEEN orders (<id 2>)
        <time> <id 1> SUSPENDED orders (<id 2>) reserve
        <time> <id 1> SUSPENDED orders (<id 2>) pack
        <time> <id 1> COMMITTED orders (<id 2>) pack
        2> to go on from here: --after <place>
    "#]]);
    let all = shop.run(&["events", "--since", "1h", "--json"]).await;
    assert_eq!(all.field("kind").len(), 5);
    assert_eq!(shop.run(&["events", "--since", "0s", "--count", "0"]).await.code, 0);
    let all =
        shop.run(&["events", "--since", "2020-01-01", "--saga", "orders", "--limit", "9", "--json"]).await;
    assert_eq!(all.field("kind").len(), 4);
    shop.run(&["events", "--after", "foo"]).await.shows(expect![[r#"
        exit 2
        2> error: invalid value 'foo' for '--after <CURSOR>': "foo" is no place in the record; use the place that `scoop events` writes at its end
        2> 
        2> For more information, try '--help'.
    "#]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_with_a_count_leave_out_no_event() {
    let mut shop = Shop::open().await;
    for number in 0..3 {
        shop.order(number, Plan::Commit).await;
    }
    let (mut seen, mut place) = (BTreeSet::new(), String::new());
    while seen.len() < 3 * 5 {
        let begin = if place.is_empty() { ["--since", "1h"] } else { ["--after", &place] };
        let some = shop.run(&[&["events", "--json", "--count", "4"], &begin[..]].concat()).await;
        let ids = some.field("id");
        assert!(!ids.is_empty(), "nothing comes after {} events", seen.len());
        seen.extend(ids);
        place = some.field("next").remove(0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn contents_of_a_run_are_redacted() {
    let mut shop = Shop::open().await;
    let order = shop.order(7, Plan::Commit).await;
    let run = order.tree().await.unwrap().roots()[0].id().to_string();
    shop.run(&["contents", &run]).await.shows(expect![[r#"
        message:
        {
        "card": "[redacted]",
        "number": 7,
        "plan": "Commit"
        }
    "#]]);
    shop.run(&["contents", &run, "--json"]).await.shows(expect![[r#"
        {"message":{"value":{"card":"[redacted]","number":7,"plan":"Commit"}},"context":null,"values":[],"complete":true}
    "#]]);
    shop.run(&["contents", &order.id().to_string()]).await.shows(expect![[r#"
        exit 3
        2> error: <id 1> is the hierarchy that begins with run <id 2> of `orders`; use <id 2>
    "#]]);
    let missing = shop.run(&["contents", "0197a6b2-6b1c-7d3e-9a53-3f1f7c1d2e4a"]).await;
    assert_eq!(missing.code, 3, "{missing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_things_are_named_and_have_an_exit_code() {
    let mut shop = Shop::open().await;
    let nothing = "0197a6b2-6b1c-7d3e-9a53-3f1f7c1d2e4a";
    shop.run(&["tree", nothing]).await.shows(expect![[r#"
        exit 3
        2> error: there is no message <id 1>; was the transaction that launched it committed, or was its hierarchy pruned?
    "#]]);
    shop.run(&["explain", nothing]).await.shows(expect![[r#"
        exit 3
        2> error: there is no hierarchy and no run <id 1>; was the transaction that launched it committed, was it pruned, or was it a run that was cancelled before it began?
    "#]]);
    shop.run(&["tree", "--topic", "shop.orders", "--key", "order 9"]).await.shows(expect![[r#"
        exit 3
        2> error: no message was launched on topic `shop.orders` with the key `order 9`; was the transaction that launched it committed, or was its hierarchy pruned?
    "#]]);
    shop.run(&["tree", "--topic", "shop.order", "--key", "order 9"]).await.shows(expect![[r#"
        exit 3
        2> error: no handler was ever registered for topic `shop.order`; did you mean `shop.orders`?
    "#]]);
    shop.run(&["tree"]).await.shows(expect![[r#"
        exit 2
        2> error: an id is missing, or the topic and the unique key of a message: --topic TOPIC --key KEY, or a field: --where FIELD=VALUE; `scoop runs --ids` lists ids
    "#]]);
    let without_key = shop.run(&["tree", "--topic", "shop.orders"]).await;
    assert!(without_key.code == 2 && without_key.stderr.contains("  --key <KEY>\n"), "{without_key:?}");
    assert!(!without_key.stderr.contains("  <ID>\n"), "{without_key:?}");
    shop.run(&["tree", "7"]).await.shows(expect![[r#"
        exit 2
        2> error: invalid value '7' for '[ID]': this is no id; an id looks like <id 1>, and `scoop runs` lists those of runs
        2> 
        2> For more information, try '--help'.
    "#]]);
    shop.run(&["runs", "--state", "done"]).await.shows(expect![[r#"
        exit 2
        2> error: invalid value 'done' for '--state <STATE>'
        2> [possible values: pending, ready, retrying, running, waiting, sleeping, awaiting-signal, stuck, rollback-failed, committed, rolled-back]
        2> 
        2> For more information, try '--help'.
    "#]]);
    shop.run(&["runs", "--handler", "order"]).await.shows(expect![[r#"
        exit 3
        2> error: no handler was ever registered for saga `order`; did you mean `orders`?
    "#]]);
    shop.run(&["runs", "--handler", "orders"]).await.shows(expect![[r#"
        2> no such runs
    "#]]);
    shop.run(&["runs", "--topic", "mails", "--json"]).await.shows(expect![[r#"
        exit 3
        2> error: no handler was ever registered for topic `mails`; there are `shop.orders`, `shop.payments`
    "#]]);
    shop.run(&["runs", "--schema", "elsewhere"]).await.shows(expect![[r#"
        exit 1
        2> error: schema `elsewhere` has no tables of scoop: the first program with sagas that starts on a schema (`Builder::start`) makes them there; start one, or call `scoop::migration::migrate`, or name the schema of those that run (`.schema(..)`), or connect to their database
        2> hint: `scoop migrate` makes the tables
    "#]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn database_that_is_away_is_an_error() {
    let ran = ran(program(&["runs", "--database-url", "postgres://127.0.0.1:1/none"]), &mut vec![]).await;
    assert_eq!(ran.code, 1);
    let error = "error: the database failed while a connection was opened: ";
    assert!(ran.stderr.starts_with(error) && ran.stderr.contains("refused"), "{}", ran.stderr);
    assert!(ran.stderr.ends_with("; the URL leads to 127.0.0.1:1\n"), "{}", ran.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_url_is_named_when_no_server_is_found() {
    let mut command = program(&["doctor"]);
    command.env("PGHOST", "127.0.0.1").env("PGPORT", "1").env_remove("PGHOSTADDR");
    let ran = ran(command, &mut vec![]).await;
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("refused"), "{ran:?}");
    assert!(ran.stderr.contains("; DATABASE_URL is not set, and the variables of PostgreSQL"), "{ran:?}");
    assert!(ran.stderr.ends_with(" lead to 127.0.0.1:1\n"), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn error_of_the_server_has_no_line_of_its_source() {
    let mut shop = Shop::open().await;
    let options = shop.db.pool().connect_options();
    let url = options.as_ref().clone().database("nothing_here").to_url_lossy().to_string();
    for command in ["runs", "doctor"] {
        let ran = shop.run(&[command, "--database-url", &url]).await;
        assert_eq!(ran.code, 1);
        assert!(ran.stderr.contains("database \"nothing_here\" does not exist"), "{ran:?}");
        assert!(!ran.stderr.contains(" at line "), "{ran:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_url_is_named_as_such() {
    let mut command = program(&["runs"]);
    command.env("DATABASE_URL", "");
    let ran = ran(command, &mut vec![]).await;
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.starts_with("error: --database-url or DATABASE_URL is empty: name the database"),
        "{ran:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_texts_are_escaped() {
    let mut shop = Shop::open().await;
    let hostile = "\u{1b}[2J\u{202e}evil\u{7}\r\nrolled back";
    let order = shop.order(1, Plan::Fail(hostile.into())).await.id().to_string();
    shop.db.execute("UPDATE scoop.message SET topic = E'\\x1b[31mred'").await;
    for args in [&["runs"][..], &["tree", &order], &["explain", &order], &["counts"]] {
        for json in [&[][..], &["--json"]] {
            let args = [args, json].concat();
            let ran = shop.run(&args).await;
            assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
            let hostile =
                ran.stdout.chars().find(|char| *char != '\n' && scoop_core::Escaped::escapes(*char));
            assert_eq!(hostile, None, "{args:?}: {}", ran.stdout);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_arguments_are_escaped_in_errors() {
    let mut shop = Shop::open().await;
    for args in [["tree", "7\u{202e}\u{1b}[2J"], ["runs", "--limit=7\u{202e}\u{1b}[2J"]] {
        let ran = shop.run(&args).await;
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains(r"7\u{202e}\u{1b}[2J"), "{ran:?}");
        let hostile = ran.stderr.chars().find(|char| *char != '\n' && scoop_core::Escaped::escapes(*char));
        assert_eq!(hostile, None, "{ran:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn colors_are_used_when_asked_for() {
    let mut shop = Shop::open().await;
    shop.order(1, Plan::Commit).await;
    assert!(!shop.run(&["runs"]).await.stdout.contains('\u{1b}'));
    assert!(shop.run(&["runs", "--color", "always"]).await.stdout.contains('\u{1b}'));
}

/// Whether a text has escape sequences of colors.
fn is_colored(text: &str) -> bool {
    text.contains("\u{1b}[")
}

#[tokio::test(flavor = "multi_thread")]
async fn terminal_has_colors_unless_no_color_is_set() {
    let shop = Shop::open().await;
    shop.order(1, Plan::Commit).await;
    for (variables, options, expected) in [
        (&[][..], &[][..], true),
        (&[("NO_COLOR", "")], &[], true),
        (&[("NO_COLOR", "1")], &[], false),
        (&[("NO_COLOR", "1")], &["--color", "always"], true),
        (&[("TERM", "dumb")], &[], false),
        (&[], &["--color", "never"], false),
    ] {
        let args = [&["runs"], options].concat();
        let ran = shop.terminal_with(200, &args, variables).ended(&mut vec![]).await;
        assert!(ran.code == 0 && ran.stdout.contains("committed"), "{ran:?}");
        assert_eq!(is_colored(&ran.stdout), expected, "{variables:?} {options:?}: {ran:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn table_fits_the_width_of_the_terminal() {
    let shop = Shop::open().await;
    shop.order(1, Plan::Fail("no chairs left, and none will come before the summer is over".into())).await;
    let lines = async |columns: u16| {
        let ran = shop.terminal(columns, &["runs", "--color", "never"]).ended(&mut vec![]).await;
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.stdout.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>()
    };
    let wide = lines(200).await;
    assert!(wide.len() == 2 && wide[1].ends_with("before the summer is over"), "{wide:?}");
    for columns in [100, 120] {
        let narrow = lines(columns).await;
        assert!(narrow.len() > 2, "{columns}: {narrow:?}");
        assert!(narrow.iter().all(|line| line.chars().count() <= columns.into()), "{columns}: {narrow:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_events_end_with_their_place() {
    let mut shop = Shop::open().await;
    for json in [&[][..], &["--json"]] {
        let place = shop.run(&["events", "--json"]).await.field("next").remove(0);
        let follow = [&["events", "--follow", "--after", &place], json].concat();
        let mut follower = shop.command(&follow).spawn().unwrap();
        let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
        shop.order(if json.is_empty() { 1 } else { 2 }, Plan::Commit).await;
        let mut last = lines.next_line().await.unwrap().expect("an event");
        interrupt(&follower).await;
        while let Some(line) = lines.next_line().await.unwrap() {
            last = line;
        }
        let ran = shop.ended(follower).await;
        assert_eq!(ran.code, 0, "{ran:?}");
        match json {
            [] => assert!(ran.stderr.starts_with("to go on from here: --after "), "{ran:?}"),
            _ => assert!(last.starts_with("{\"next\":\"") && ran.stderr.is_empty(), "{last}: {ran:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_cannot_be_read_end_with_their_place() {
    let mut shop = Shop::open().await;
    shop.order(1, Plan::Commit).await;
    let place = shop.run(&["events", "--json"]).await.field("next").remove(0);
    shop.scoop.shutdown().await.unwrap();
    shop.db.execute("ALTER TABLE scoop.message_event RENAME TO moved").await;
    let after = ["events", "--follow", "--after", &place];
    let ran = shop.run(&after).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    let next = format!("to go on from here: --after {place}\nerror: ");
    assert!(ran.stderr.starts_with(&next), "{ran:?}");
    let ran = shop.run(&[&after[..], &["--json"]].concat()).await;
    assert_eq!((ran.code, ran.field("next")), (1, vec![place]));
    assert!(ran.stderr.starts_with("error: "), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupt_during_the_output_of_an_event_ends_the_events() {
    let mut shop = Shop::open().await;
    for number in 1..=300 {
        shop.scoop.launch(Order { number, plan: Plan::Commit, card: String::new() }).await.unwrap();
    }
    eventually("all have ended", async || {
        shop.db.number("SELECT count(*) FROM scoop.message_event WHERE type = 'COMMITTED'").await == 300
    })
    .await;
    let follow = ["events", "--follow", "--since", "1h", "--json"];
    let mut follower = shop.command(&follow).spawn().unwrap();
    // More events than the pipe has room for. `0x1` is standard output, the first argument of the system call.
    let call = format!("/proc/{}/syscall", follower.id().unwrap());
    eventually("it waits until its output is read", async || {
        std::fs::read_to_string(&call).unwrap().split(' ').nth(1) == Some("0x1")
    })
    .await;
    interrupt(&follower).await;
    let mut last = String::new();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        last = line;
    }
    let ran = shop.ended(follower).await;
    assert!(ran.code == 0 && last.starts_with("{\"next\":\""), "{last}: {ran:?}");
}

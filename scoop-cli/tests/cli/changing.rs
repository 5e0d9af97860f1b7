//! Commands that change something: launches, signals, requests and repairs.

use std::time::Duration;

use expect_test::expect;
use scoop::{Outcome, RunState};
use scoop_test_support::Ends as _;

use crate::support::{Plan, Shop};

#[tokio::test(flavor = "multi_thread")]
async fn message_is_launched_by_topic_and_json() {
    let mut shop = Shop::open().await;
    let order = r#"{"number":1,"plan":"Commit"}"#;
    shop.run(&["launch", "shop.orders", order, "--dry-run"]).await.shows(expect![[r#"
        would launch a message on topic `shop.orders` to orders
    "#]]);
    shop.run(&["launch", "shop.orders", order, "--yes", "--wait", "--unique", "order 1"]).await.shows(
        expect![[r#"
        <id 1>
        committed
    "#]],
    );
    let fails = r#"{"number":2,"plan":{"Fail":"no chairs left"}}"#;
    shop.run_with(&["launch", "shop.orders", "-", "--yes", "--wait", "--json"], fails).await.shows(expect![
        [r#"
        exit 1
        {"hierarchy":"<id 2>","message":"<id 3>","outcome":"rolled back","text":"rolled back: no chairs left"}
    "#]
    ]);
    shop.run(&["launch", "shop.order", order, "--yes"]).await.shows(expect![[r#"
        exit 3
        2> error: no handler is subscribed to topic `shop.order` (add --without-handler to launch the message all the same); did you mean `shop.orders`?
    "#]]);
    shop.run(&["launch", "shop.order", "null", "--yes", "--wait", "--without-handler"]).await.shows(expect![
        [r#"
        exit 1
        <id 4>
        no handlers: no saga was subscribed
    "#]
    ]);
    shop.run(&["launch", "shop.orders", "{", "--yes"]).await.shows(expect![[r#"
        exit 2
        2> error: the payload is no JSON: EOF while parsing an object at line 1 column 1
    "#]]);
    // The key finds the order that was launched with it.
    let again = shop.run(&["launch", "shop.orders", order, "--yes", "--unique", "order 1", "--json"]).await;
    let found = shop.scoop.find_topic_by_key("shop.orders", "order 1").await.unwrap();
    assert_eq!(again.field("hierarchy"), [found.id().to_string()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn change_without_an_answer_is_refused() {
    let mut shop = Shop::open().await;
    let order = shop.unpaid_order(1).await;
    let id = order.id().to_string();
    shop.run(&["cancel", &id, "--reason", "the customer left"]).await.shows(expect![[r#"
        exit 2
        2> error: this changes something, and no terminal is there for a question: add --yes, or --dry-run to see what would be done
    "#]]);
    shop.run(&["cancel", &id, "--reason", "the customer left", "--dry-run"]).await.shows(expect![[r#"
        would cancel <id 1>, the hierarchy that begins with run <id 2> of `orders` (waiting)
    "#]]);
    shop.run(&["cancel", &id, "--reason", "the customer left", "--dry-run", "--json"]).await.shows(expect![
        [r#"
        {"would":"cancel <id 1>, the hierarchy that begins with run <id 2> of `orders` (waiting)"}
    "#]
    ]);
    assert!(order.tree().await.unwrap().cancellations().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn launch_notifies_the_workers_before_it_ends() {
    // Nothing is found by polling.
    let mut shop = Shop::with(|scoop| scoop.poll_interval(Duration::from_secs(3_600))).await;
    let launch = ["launch", "shop.orders", r#"{"number":1,"plan":"Commit"}"#, "--yes", "--json"];
    let hierarchy = shop.run(&launch).await.field("hierarchy").remove(0);
    let order = shop.scoop.find(hierarchy.parse::<scoop::HierarchyId>().unwrap()).await.unwrap();
    assert_eq!(order.ends().await.unwrap(), Outcome::Committed);
}

#[tokio::test(flavor = "multi_thread")]
async fn signal_reaches_the_run_that_awaits_it() {
    let mut shop = Shop::open().await;
    let order = shop.unpaid_order(7).await;
    shop.run(&["signal", "shop.paid", "order 8", r#"{"cents":990}"#, "--yes"]).await.shows(expect![[r#"
        no run awaits it; it is kept for 7d
    "#]]);
    shop.run(&["signal", "shop.paid", "order 7", r#"{"cents":990}"#, "--yes"]).await.shows(expect![[r#"
        the signal has reached 1 run
    "#]]);
    assert_eq!(order.wait().await.unwrap(), Outcome::Committed);
    shop.run(&["signal", "", "order 7", "--yes"]).await.shows(expect![[r#"
        exit 1
        2> error: the signal `` cannot be sent: its name has 0 characters; 1 to 180 are possible
    "#]]);
    let id = "0197a6b2-6b1c-7d3e-9a53-3f1f7c1d2e4a";
    let keep =
        ["signal", "shop.paid", "order 9", r#"{"cents":1}"#, "--yes", "--id", id, "--keep", "2h", "--json"];
    shop.run(&keep).await.shows(expect![[r#"
        {"reached":0}
    "#]]);
    shop.run(&keep).await.shows(expect![[r#"
        {"reached":0}
    "#]]);
    let kept =
        "SELECT count(*) FROM scoop.signal WHERE key = 'order 9' AND kept_until - sent_at < interval '3 h'";
    assert_eq!(shop.db.number(kept).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_order_is_cancelled_and_finished_one_is_rolled_back() {
    let mut shop = Shop::open().await;
    let order = shop.unpaid_order(1).await;
    let id = order.id().to_string();
    let request = ["--reason", "the customer left", "--source", "support", "--yes"];
    shop.run(&[&["rollback", &id], &request[..]].concat()).await.shows(expect![[r#"
        exit 3
        still running: a run of it is unfinished: repeat the request later, or cancel the run
    "#]]);
    shop.run(&[&["cancel", &id], &request[..]].concat()).await.shows(expect![[r#"
        accepted: the unfinished runs give up
    "#]]);
    assert!(matches!(order.wait().await.unwrap(), Outcome::RolledBack(_)));
    shop.run(&[&["cancel", &id], &request[..]].concat()).await.shows(expect![[r#"
        exit 3
        already requested: a cancellation was requested before
    "#]]);
    let asked = &order.tree().await.unwrap().cancellations()[0].clone();
    assert_eq!((&*asked.reason, &*asked.source), ("the customer left", "support"));

    let done = shop.order(2, Plan::Commit).await;
    let by_key = ["rollback", "--topic", "shop.orders", "--key", "order 2"];
    shop.run(&[&by_key[..], &request, &["--json"]].concat()).await.shows(expect![[r#"
        {"answer":"accepted","text":"the rollback begins"}
    "#]]);
    assert!(matches!(done.wait().await.unwrap(), Outcome::RolledBack(_)));
    shop.run(&[&by_key[..], &request].concat()).await.shows(expect![[r#"
        exit 3
        already rolled back: the runs are rolled back already
    "#]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_compensation_is_retried_skipped_or_resolved() {
    let mut shop = Shop::open().await;
    let mut runs = vec![];
    for number in 1..=3 {
        let order = shop.order(number, Plan::FailToUndo).await;
        let run = order.tree().await.unwrap().runs()[0].id().to_string();
        runs.push((order, run));
    }
    let reason = ["--reason", "paid back in cash", "--source", "support", "--yes"];
    shop.run(&["retry", &runs[0].1, "--dry-run"]).await.shows(expect![[r#"
        would retry <id 1>, a run of `orders` in hierarchy <id 2> (rollback failed)
    "#]]);
    shop.run(&["retry", &runs[0].1, "--yes"]).await.shows(expect![[r#"
        accepted: the decision is recorded, and the rollback goes on
    "#]]);
    shop.run(&[&["skip", &runs[1].1], &reason[..]].concat()).await.shows(expect![[r#"
        accepted: the decision is recorded, and the rollback goes on
    "#]]);
    shop.run(&[&["resolve", &runs[2].1, "--json"], &reason[..]].concat()).await.shows(expect![[r#"
        {"answer":"accepted","text":"the decision is recorded, and the rollback goes on"}
    "#]]);
    shop.run(&[&["resolve", &runs[2].1], &reason[..]].concat()).await.shows(expect![[r#"
        exit 3
        not failed: the run has no failed rollback, or it was settled before
    "#]]);
    for (order, _) in &runs[1..] {
        assert!(matches!(order.wait().await.unwrap(), Outcome::RolledBack(_)));
        let done = &shop.scoop.interventions(order.id()).await.unwrap()[0];
        assert_eq!((&*done.source, done.note.as_deref()), ("support", Some("paid back in cash")));
    }
    // The bank is still closed.
    let first = &runs[0].0;
    first.comes_to(|tree| matches!(tree.runs()[0].state, RunState::Stuck { .. })).await.unwrap();
    let order = first.id().to_string();
    shop.run(&["retry", &order, "--yes"]).await.shows(expect![[r#"
        exit 3
        2> error: <id 2> is the hierarchy that begins with run <id 1> of `orders`; use <id 1>
    "#]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn saga_is_paused_and_resumed() {
    let mut shop = Shop::open().await;
    shop.run(&["pauses"]).await.shows(expect![[r#"
        nothing is paused
    "#]]);
    shop.run(&["pause", "--saga", "payments", "--reason", "the bank is away", "--dry-run"]).await.shows(
        expect![[r#"
            would pause saga `payments`
        "#]],
    );
    for options in [&["--dry-run"][..], &["--yes"]] {
        let mistyped = ["pause", "--saga", "payment", "--reason", "the bank is away"];
        shop.run(&[&mistyped[..], options].concat()).await.shows(expect![[r#"
            exit 3
            2> error: no handler was ever registered for saga `payment`; did you mean `payments`?
        "#]]);
    }
    shop.run(&[
        "pause",
        "--saga",
        "payments",
        "--reason",
        "the bank is away",
        "--source",
        "ann",
        "--drain",
        "30s",
        "--yes",
    ])
    .await
    .shows(expect![[r#"
        saga `payments` is paused by ann since <time>: the bank is away; runs in a step: 0
    "#]]);
    shop.run(&["pause", "--everything", "--reason", "no time", "--for-at-most", "0s", "--yes"]).await.shows(
        expect![[r#"
            exit 2
            2> error: a pause for <duration> would end at once; write --for-at-most <duration> or more, or leave it out: then the pause lasts until `scoop resume` ends it
        "#]],
    );
    let launched = shop.run(&["launch", "shop.payments", r#"{"order":1}"#, "--yes", "--json"]).await;
    let hierarchy = launched.field("hierarchy").remove(0);
    shop.run(&["explain", &hierarchy]).await.shows(expect![[r#"
        Run <id 3> of `payments` waits for the end of a pause, for <duration>: saga `payments` is paused by ann since <time>: the bank is away. It goes on when `resume` ends the pause of saga `payments`.
    "#]]);
    shop.run(&["explain", &hierarchy, "--json"]).await.shows(expect![[r#"
        {"run":"<id 3>","hierarchy":"<id 1>","parent":null,"handler":"payments","topic":"shop.payments","message":"<id 2>","state":"pending","since":"<time>","waits_for":"pause","attempts":0,"reason":null,"failure":null,"rolling_back":false,"deadline":null,"wakes_at":null,"awaits":null,"worker":null,"step":null,"waiting":{"for":"pause","pauses":[{"saga":"payments","topic":null,"reason":"the bank is away","source":"ann","since":"<time>","until":null}]},"giving_up":false,"pauses":[{"saga":"payments","topic":null,"reason":"the bank is away","source":"ann","since":"<time>","until":null}],"join":null,"text":"Run <id 3> of `payments` waits for the end of a pause, for <duration>: saga `payments` is paused by ann since <time>: the bank is away. It goes on when `resume` ends the pause of saga `payments`.","ends_by":"It goes on when `resume` ends the pause of saga `payments`.","read_at":"<time>"}
    "#]]);
    shop.run(&["pauses", "--json"]).await.shows(expect![[r#"
        {"saga":"payments","topic":null,"reason":"the bank is away","source":"ann","since":"<time>","until":null}
    "#]]);
    let resume = ["resume", "--saga", "payments", "--reason", "it is open", "--source", "ben", "--yes"];
    shop.run(&resume).await.shows(expect![[r#"
        ended: saga `payments` is paused by ann since <time>: the bank is away
    "#]]);
    shop.run(&["resume", "--saga", "payments", "--yes"]).await.shows(expect![[r#"
        exit 3
        2> error: saga `payments` is not paused
    "#]]);
    let ended = shop.scoop.ended_pauses().limit(1).await.unwrap().remove(0);
    assert_eq!((ended.ended_by.as_deref(), ended.end_reason.as_deref()), (Some("ben"), Some("it is open")));
    shop.run(&["pause", "--everything", "--reason", "maintenance", "--for-at-most", "2h", "--yes", "--json"])
        .await
        .shows(expect![[r#"
            {"saga":null,"topic":null,"reason":"maintenance","source":"scoop-cli","since":"<time>","until":"<time>","in_force":true,"is_known":true,"unacknowledged":[],"running":0}
        "#]]);
    shop.run(&["pause", "--reason", "what?", "--yes"]).await.shows(expect![[r#"
        exit 2
        2> error: the following required arguments were not provided:
        2> <--saga <NAME>|--topic <NAME>|--everything>
        2> 
        2> Usage: scoop pause --reason <TEXT> --yes --database-url <URL> <--saga <NAME>|--topic <NAME>|--everything>
        2> 
        2> For more information, try '--help'.
    "#]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_order_is_explained_and_reached_by_its_signal() {
    let mut shop = Shop::open().await;
    let order = shop.unpaid_order(7).await;
    let payment = order.tree().await.unwrap().runs()[1].id().to_string();
    let pause = ["pause", "--everything", "--reason", "maintenance", "--source", "ann", "--yes"];
    assert_eq!(shop.run(&pause).await.code, 0);
    shop.run(&["explain", &order.id().to_string()]).await.shows(expect![[r#"
        Run <id 1> of `orders` waits for 1 child, for <duration>. Below it, run <id 2> of `payments` awaits the signal `shop.paid` with the key `order 7`. No step of it begins now: everything is paused by ann since <time>: maintenance. It goes on when all its children have ended. Also, `resume` has to end the pause of everything.
    "#]]);
    shop.run(&["explain", &payment]).await.shows(expect![[r#"
        Run <id 2> of `payments` awaits the signal `shop.paid` with the key `order 7`, for <duration>, until <time> (in <duration> <duration>) at the latest. No step of it begins now: everything is paused by ann since <time>: maintenance. It goes on when the signal `shop.paid` is sent with the key `order 7`, or at that time. Also, `resume` has to end the pause of everything.
    "#]]);
    let doctor = shop.run(&["doctor", "--json"]).await;
    let found = doctor.field("check").iter().position(|check| check == "pauses").unwrap();
    let of_pauses = |field| doctor.field(field)[found].clone();
    assert_eq!(of_pauses("level"), "warning");
    assert!(of_pauses("text").starts_with("everything is paused by ann since 2"), "{doctor:?}");
    assert_eq!(of_pauses("advice"), "when the reason is gone: scoop resume --everything");
    shop.run(&["signal", "shop.paid", "order 7", r#"{"cents":990}"#, "--yes"]).await.shows(expect![[r#"
        the signal has reached 1 run
        a run that is paused goes on after the pause: everything is paused by ann since <time>: maintenance
    "#]]);
    shop.run(&["explain", &payment]).await.shows(expect![[r#"
        Run <id 2> of `payments` waits for the end of a pause, for <duration>: everything is paused by ann since <time>: maintenance. It goes on when `resume` ends the pause of everything.
    "#]]);
    assert_eq!(shop.run(&["resume", "--everything", "--yes"]).await.code, 0);
    assert_eq!(order.wait().await.unwrap(), Outcome::Committed);
}

#[tokio::test(flavor = "multi_thread")]
async fn handler_without_a_program_is_retired() {
    let mut shop = Shop::open().await;
    shop.run(&["retire", "shop.orders", "order", "--yes"]).await.shows(expect![[r#"
        exit 3
        2> error: saga `order` is not subscribed to topic `shop.orders`
    "#]]);
    shop.run(&["retire", "shop.payments", "payments", "--dry-run"]).await.shows(expect![[r#"
        would retire saga `payments` from topic `shop.payments`
    "#]]);
    shop.scoop.shutdown().await.unwrap();
    shop.run(&["launch", "shop.payments", r#"{"order":1}"#, "--yes", "--json"]).await.shows(expect![[r#"
        {"hierarchy":"<id 1>","message":"<id 2>"}
    "#]]);
    shop.run(&["retire", "shop.payments", "payments", "--yes"]).await.shows(expect![[r#"
        retired; 1 run has not begun, 0 were dropped
    "#]]);
    shop.run(&["retire", "shop.payments", "payments", "--yes", "--drop-pending", "--json"]).await.shows(
        expect![[r#"
        {"was_registered":false,"pending":0,"dropped":1}
    "#]],
    );
    shop.run(&["launch", "shop.payments", r#"{"order":2}"#, "--yes"]).await.shows(expect![[r#"
        exit 3
        2> error: no handler is subscribed to topic `shop.payments` (add --without-handler to launch the message all the same); there are `shop.orders`
    "#]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn old_hierarchies_are_pruned() {
    let mut shop = Shop::open().await;
    shop.order(1, Plan::Commit).await;
    shop.order(2, Plan::FailToUndo).await;
    shop.unpaid_order(3).await;
    shop.db.grow_older(Duration::from_secs(2 * 86_400)).await;
    let recent = shop.order(4, Plan::Commit).await;
    shop.run(&["prune", "--older-than", "1d", "--dry-run"]).await.shows(expect![[r#"
        would delete 1 hierarchy with 1 message and 5 events, and 0 signals
        kept 1 unfinished
        kept 1 awaiting an operator
    "#]]);
    shop.run(&["prune", "--older-than", "1d", "--dry-run", "--json"]).await.shows(expect![[r#"
        {"dry_run":true,"hierarchies":1,"messages":1,"events":5,"signals":0,"unique_keys":0,"kept":{"recent":0,"unfinished":1,"failed":1,"needed":0,"busy":0,"refused":0},"more":false}
    "#]]);
    shop.run(&["prune", "--older-than", "1d"]).await.shows(expect![[r#"
        exit 2
        2> error: this changes something, and no terminal is there for a question: add --yes, or --dry-run to see what would be done
    "#]]);
    shop.run(&["prune", "--older-than", "1d", "--yes"]).await.shows(expect![[r#"
        deleted 1 hierarchy with 1 message and 5 events, and 0 signals
        kept 1 unfinished
        kept 1 awaiting an operator
    "#]]);
    shop.run(&["prune", "--older-than", "1m", "--yes"]).await.shows(expect![[r#"
        exit 2
        2> error: nothing younger than 1h can be pruned, and --older-than is <duration>; write --older-than 1h or more
    "#]]);
    shop.run(&["tree", "--topic", "shop.orders", "--key", "order 1"]).await.shows(expect![[r#"
        exit 3
        2> error: no message was launched on topic `shop.orders` with the key `order 1`; was the transaction that launched it committed, or was its hierarchy pruned?
    "#]]);
    assert_eq!(recent.wait().await.unwrap(), Outcome::Committed);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_working_set_is_rebuilt_without_living_programs() {
    let mut shop = Shop::open().await;
    shop.unpaid_order(1).await;
    shop.run(&["rebuild", "--yes"]).await.shows(expect![[r#"
        exit 3
        2> error: 1 worker lives: stop the programs with sagas first; `scoop topology` lists them
    "#]]);
    shop.run(&["rebuild", "--dry-run"]).await.shows(expect![[r#"
        2 runs are unfinished, 2 would be; 0 differences in all
    "#]]);
    shop.scoop.shutdown().await.unwrap();
    shop.db.execute("UPDATE scoop.run SET step = 'pack', suspensions = 7 WHERE handler = 'orders'").await;
    shop.run(&["rebuild", "--dry-run"]).await.shows(expect![[r#"
        run <id 1> of `orders` in hierarchy <id 2> would change: step from "pack" to "reserve", suspensions from 7 to 1
        2 runs are unfinished, 2 would be; 1 difference in all
    "#]]);
    shop.run(&["rebuild", "--dry-run", "--json"]).await.shows(expect![[r#"
        {"hierarchy":"<id 2>","run":"<id 1>","saga":"orders","message_id":"<id 3>","change":"changed","fields":{"step":["pack","reserve"],"suspensions":[7,1]}}
        {"before":2,"after":2,"different":1,"skipped":[]}
    "#]]);
    shop.db.execute("DELETE FROM scoop.run WHERE handler <> 'none'").await;
    shop.run(&["rebuild", "--dry-run"]).await.shows(expect![[r#"
        run <id 4> of `payments` in hierarchy <id 2> would be added
        run <id 1> of `orders` in hierarchy <id 2> would be added
        0 runs are unfinished, 2 would be; 2 differences in all
    "#]]);
    shop.run(&["rebuild", "--yes"]).await.shows(expect![[r#"
        0 runs were unfinished, 2 are
    "#]]);
    shop.run(&["rebuild", "--yes", "--json"]).await.shows(expect![[r#"
        {"before":2,"after":2,"skipped":[]}
    "#]]);
}

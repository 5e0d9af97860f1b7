//! Ids of runs and hierarchies, and the error for an id that names something else.

use scoop::requests::{CancelAnswer, RepairAnswer};
use scoop::{Handle, HierarchyId, IdKind, IdObject, RunId};
use uuid::Uuid;

use super::*;
use crate::support::Database;

handler! {
    Checkout: "checkout" on Root;
    step "reserve" reserve => launches(Child);
}

handler! {
    Stock: "stock" on Child;
    step "take" take => done();
}

handler! {
    Mail: "mail" on Child;
    step "send" send => done();
}

async fn committed() -> Result<(Database, Scoop, Handle)> {
    let db = Database::new().await;
    let scoop = db.start((Checkout, Stock, Mail)).await?;
    let order = scoop.launch(Root).await?;
    assert_eq!(order.ends().await?, Outcome::Committed);
    Ok((db, scoop, order))
}

/// The error of a request.
fn refusal<T: std::fmt::Debug>(answer: Result<T, impl std::fmt::Debug + std::fmt::Display>) -> String {
    answer.expect_err("the id is not the right one").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn id_of_a_run_is_the_same_in_all_results_and_requests() -> Result<()> {
    let (_db, scoop, order) = committed().await?;
    let tree = order.tree().await?;
    let [root] = tree.roots() else { panic!("{tree}") };
    let run: RunId = root.id();
    assert_eq!((root.hierarchy(), root.children[0].hierarchy()), (order.id(), order.id()));
    assert!(tree.to_string().contains(&format!("run {run}")), "{tree}");

    // From a log as text, or as a UUID.
    assert_eq!(scoop.operate().failures().retry(run).await?, RepairAnswer::NotFailed);
    assert_eq!(
        scoop.operate().failures().retry(run.to_string().parse::<RunId>()?).await?,
        RepairAnswer::NotFailed
    );
    assert_eq!(scoop.operate().failures().retry(run.uuid()).await?, RepairAnswer::NotFailed);
    assert_eq!(scoop.cancel(run, "too late").await?, CancelAnswer::NothingToDo);
    assert_eq!(scoop.cancel(run.uuid(), "again").await?, CancelAnswer::AlreadyRequested);
    assert_eq!(scoop.cancel(order.id(), "all of it").await?, CancelAnswer::NothingToDo);
    let found = scoop.find(order.id().to_string().parse::<HierarchyId>()?).await?;
    assert_eq!(found.id(), order.id());
    assert_eq!(scoop.find(order.id().uuid()).await?.id(), order.id());
    assert!(scoop.operate().failures().interventions(order.id()).await?.is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn id_of_a_hierarchy_where_a_run_is_wanted_is_refused_with_the_run() -> Result<()> {
    let (_db, scoop, order) = committed().await?;
    let run = order.tree().await?.roots()[0].id();
    let error = scoop.operate().failures().retry(order.id().uuid()).await.expect_err("it is no run");
    let Some((IdObject::Hierarchy { runs }, IdKind::Run)) = error.wrong_id() else { panic!("{error}") };
    assert_eq!(runs[..], [(run, "checkout".to_owned())]);
    let expected =
        format!("{} is the hierarchy that begins with run {run} of `checkout`; use {run}", order.id());
    assert_eq!(error.to_string(), expected);
    for error in [
        refusal(scoop.operate().failures().skip(order.id().uuid(), "").await),
        refusal(scoop.operate().failures().resolve(order.id().uuid(), "").await),
    ] {
        assert_eq!(error, expected);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn id_of_a_message_is_refused_with_its_runs() -> Result<()> {
    let (_db, scoop, order) = committed().await?;
    let tree = order.tree().await?;
    let (root, message, hierarchy) = (tree.roots()[0].id(), order.message_id(), order.id());
    let is = format!(
        "{message} is the message of hierarchy {hierarchy} that run {root} of `checkout` handles; use "
    );
    assert_eq!(refusal(scoop.operate().failures().retry(message).await), format!("{is}{root}"));
    let either = format!("{is}{root} for the run, or {hierarchy} for all of the hierarchy");
    assert_eq!(refusal(scoop.cancel(message, "").await), either);
    assert_eq!(refusal(scoop.rollback(message, "").await), either);
    assert_eq!(refusal(scoop.find(message).await.map(|_| ())), format!("{is}{hierarchy}"));
    assert_eq!(refusal(scoop.operate().failures().interventions(message).await), format!("{is}{hierarchy}"));

    let child = &tree.roots()[0].children;
    let run_of = |handler: &str| child.iter().find(|run| run.handler == handler).expect("it ran").id();
    let (mail, stock, message) = (run_of("mail"), run_of("stock"), child[0].message_id);
    let is = format!(
        "{message} is the message of hierarchy {hierarchy} that run {mail} of `mail` and run {stock} of `stock` handle"
    );
    assert_eq!(
        refusal(scoop.operate().failures().retry(message).await),
        format!("{is}; use the id of a run")
    );
    assert_eq!(refusal(scoop.cancel(message, "").await), format!("{is}; use {hierarchy}"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn id_of_a_run_where_a_hierarchy_is_wanted_is_refused_with_the_hierarchy() -> Result<()> {
    let (_db, scoop, order) = committed().await?;
    let (run, hierarchy) = (order.tree().await?.roots()[0].id(), order.id());
    let expected = format!("{run} is a run of `checkout` in hierarchy {hierarchy}; use {hierarchy}");
    assert_eq!(refusal(scoop.find(run.uuid()).await.map(|_| ())), expected);
    assert_eq!(refusal(scoop.operate().failures().interventions(run.uuid()).await), expected);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_run_is_found_by_its_id() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Checkout, Stock, Mail)).await?;
    let order = scoop.launch(Root).delay(std::time::Duration::from_secs(3600)).await?;
    let run = order.tree().await?.roots()[0].id();
    let expected = format!("{run} is a run of `checkout` in hierarchy {id}; use {id}", id = order.id());
    assert_eq!(refusal(scoop.find(run.uuid()).await.map(|_| ())), expected);
    let message = format!("that run {run} of `checkout` handles; use {run}");
    assert!(refusal(scoop.operate().failures().retry(order.message_id()).await).ends_with(&message));
    assert_eq!(scoop.cancel(run, "never mind").await?, CancelAnswer::Accepted);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_id_is_refused() -> Result<()> {
    let (_db, scoop, _) = committed().await?;
    let unknown = Uuid::new_v4();
    let cancelled = scoop.cancel(unknown, "").await.unwrap_err();
    let expected = format!("there is no hierarchy and no run {unknown};");
    assert!(cancelled.is_not_found() && cancelled.to_string().starts_with(&expected), "{cancelled:?}");
    let retried = scoop.operate().failures().retry(unknown).await.unwrap_err();
    let missing = scoop.operate().failures().interventions(unknown).await.unwrap_err();
    for error in [retried, missing] {
        assert!(error.is_not_found() && error.to_string().contains(&unknown.to_string()), "{error}");
    }
    Ok(())
}

//! Functions, operators and tables of another role, with names that the engine uses.

use std::time::Duration;

use sqlx::postgres::PgPoolOptions;

use super::*;
use crate::support::Database;

const PLANTED: &str = include_str!("planted.sql");

handler! {
    RootHandler: "root-handler" on Root;
    #[step(name = "0", rollback = undo)]
    async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<String> {
        scope.launch(Child).await?;
        Ok(sqlx::query_scalar("SHOW search_path").fetch_one(scope.tx().await?).await?)
    }

    rollback undo => executes("SELECT 1").silently();

    #[step(name = "1")]
    async fn one(&self, scope: &mut Scope<'_>, _: &Root, path: &String) -> Result<()> {
        sqlx::query("SELECT 1").execute(scope.tx().await?).await?;
        match path.as_str() {
            "public,pg_catalog" => Ok(()),
            other => Err(Error::msg(format!("the step had the search_path {other}"))),
        }
    }
}

handler! {
    ChildHandler: "child-handler" on Child;
    step "0" zero [rollback = undo] => launches(Grandchild).silently();
    rollback undo => done().silently();
}

handler! {
    FailingHandler: "failing-handler" on Child2;
    #[step(name = "0")]
    async fn zero(&self, scope: &mut Scope<'_>, _: &Child2) -> Result<()> {
        scope.launch(Child).await?;
        sqlx::query("SELECT 1").execute(scope.tx().await?).await?;
        Ok(())
    }

    step "1" one => fails(SIMULATED).silently();
}

#[tokio::test(flavor = "multi_thread")]
async fn planted_functions_and_operators_are_never_called() -> Result<()> {
    let db = Database::new().await;
    db.execute(PLANTED).await;
    // Such a path prefers the planted ones even where the server has exactly the same.
    let options = (*db.pool().connect_options()).clone().options([("search_path", "public,pg_catalog")]);
    let pool = PgPoolOptions::new().max_connections(8).connect_with(options).await?;
    let builder = || Scoop::builder().postgres(pool.clone());
    let scoop =
        builder().only::<RootHandler>().only::<ChildHandler>().only::<FailingHandler>().start().await?;

    let root = scoop.launch(Root).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    let failing = scoop.launch(Child2).await?;
    assert!(matches!(failing.ends().await?, Outcome::RolledBack(_)));
    let mut tx = pool.begin().await?;
    let launched = [
        scoop.launch(Root).in_transaction(&mut tx).await?,
        scoop.launch(Root).unique("1").in_transaction(&mut tx).await?,
    ];
    tx.commit().await?;
    for launched in &launched {
        assert_eq!(launched.ends().await?, Outcome::Committed);
    }
    let later = scoop.launch(Root).delay(Duration::from_secs(3600)).await?;
    assert_eq!(scoop.cancel(later.id(), "not wanted").await?, CancelAnswer::Accepted);
    assert!(matches!(later.ends().await?, Outcome::RolledBack(_)));
    assert_eq!(scoop.rollback(root.id(), "not wanted").await?, RollbackAnswer::Accepted);
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
    assert_eq!(root.tree().await?.runs().len(), 2);
    assert!(!scoop.operate().handlers().list().await?.is_empty());
    assert!(scoop.operate().failures().stuck().await?.is_empty());
    scoop.shutdown().await?;

    // The next worker finds a dead one, removes it, and sweeps.
    db.execute(
        "INSERT INTO scoop.worker
             (id, lock_key, backend, backend_since, role, topics, handlers, definitions, started_at)
         VALUES (gen_random_uuid(), 1, 0, now(), 0, '{}', '{}', '{}', now())",
    )
    .await;
    builder().only::<RootHandler>().start().await?.shutdown().await?;
    assert_eq!(db.number("SELECT count(*) FROM scoop.worker").await, 0);

    let called = "SELECT CASE WHEN is_called THEN last_value END FROM public.calls";
    let called: Option<i64> = sqlx::query_scalar(called).fetch_one(&pool).await?;
    assert_eq!(called, None, "planted code was called");
    pool.close().await;
    Ok(())
}

//! A server that can only be read, since it has not taken over yet.

use std::time::Duration;

use scoop::embedded::Embedded;
use sqlx::PgPool;

use super::*;

handler! {
    HeirHandler: "heir-handler" on Root;
    step "0" zero => executes("SELECT 1");
}

#[tokio::test(flavor = "multi_thread")]
async fn operation_refused_by_a_standby_may_be_retried() -> Result<()> {
    if !Embedded::is_installed() {
        eprintln!("not tested: there is no PostgreSQL on this machine");
        return Ok(());
    }
    let primary = Embedded::start().await?;
    let program = |pool: &PgPool| Scoop::builder().postgres(pool.clone()).only::<HeirHandler>();
    let pool = PgPool::connect_with(primary.connect_options()).await?;
    program(&pool).start().await?.shutdown().await?;
    pool.close().await;

    let standby = primary.standby().await?;
    let pool = PgPool::connect_with(standby.connect_options()).await?;
    let started = program(&pool).start().await;
    assert!(matches!(&started, Err(error) if error.is_transient()), "{:?}", started.err());
    let client = Scoop::builder().postgres(pool.clone()).retry_for(Duration::from_secs(1)).client().await?;
    let launched = client.launch(Root).await;
    assert!(matches!(&launched, Err(error) if error.is_transient()), "{:?}", launched.err());

    sqlx::query("SELECT pg_promote()").execute(&pool).await?;
    let scoop = program(&pool).start().await?;
    assert_eq!(scoop.launch(Root).await?.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
}

//! The time before all open transactions, from which a stream of events begins.

use time::OffsetDateTime;

use super::*;

async fn oldest(pool: &PgPool) -> OffsetDateTime {
    let (_, text) = scoop_operate::statements()
        .into_iter()
        .find(|(name, _)| *name == "event_oldest_transaction")
        .unwrap();
    sqlx::query_scalar(AssertSqlSafe(text)).fetch_one(pool).await.unwrap()
}

/// When this transaction began, which has a number from now on.
async fn begun(tx: &mut PgConnection) -> OffsetDateTime {
    let begun = "SELECT transaction_timestamp() FROM pg_current_xact_id()";
    sqlx::query_scalar(begun).fetch_one(tx).await.unwrap()
}

#[tokio::test]
async fn time_before_open_transactions_is_no_later_than_the_beginning_of_one() {
    let pool = database("oldest_transaction").await;
    launching(&pool).await;
    let mut tx = pool.begin().await.unwrap();
    let begun = begun(&mut tx).await;
    let oldest = oldest(&pool).await;
    assert!(oldest <= begun, "{oldest} is later than {begun}");
    tx.rollback().await.unwrap();
    done(pool).await;
}

#[tokio::test]
async fn beginning_of_a_hidden_transaction_is_an_hour_ago() {
    let pool = database("hidden_transaction").await;
    launching(&pool).await;
    let role = format!("sees_no_times_{}", std::process::id());
    for statement in [
        format!("CREATE ROLE {role}"),
        format!("GRANT USAGE ON SCHEMA scoop TO {role}"),
        format!("GRANT SELECT ON ALL TABLES IN SCHEMA scoop TO {role}"),
    ] {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&pool).await.unwrap();
    }
    let options = pool.connect_options().as_ref().clone().options([("role", &*role)]);
    let of_role = PgPool::connect_with(options).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    let begun = begun(&mut tx).await;
    let oldest = oldest(&of_role).await;
    let ago = begun - oldest;
    assert!(ago > time::Duration::minutes(59) && ago <= time::Duration::HOUR, "{oldest}, {begun}");
    tx.rollback().await.unwrap();
    of_role.close().await;
    let drop = format!("DROP OWNED BY {role}; DROP ROLE {role}");
    sqlx::raw_sql(AssertSqlSafe(drop)).execute(&pool).await.unwrap();
    done(pool).await;
}

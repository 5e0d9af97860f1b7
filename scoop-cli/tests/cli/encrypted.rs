//! Connections with TLS, to a server that lets no others in.

use std::path::PathBuf;

use scoop_embedded::Embedded;
use scoop_test_support::eventually;
use sqlx::{AssertSqlSafe, PgPool};

use super::support::{program, ran};

/// The certificate of the server, in a file that is removed with this.
struct Certificate(PathBuf);

impl Drop for Certificate {
    fn drop(&mut self) {
        // The folder for temporary files is cleared anyway.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// An address of this machine at which no other server listens.
fn address() -> String {
    let [.., high, low] = std::process::id().to_be_bytes();
    format!("127.77.{high}.{low}")
}

/// Has the server make its certificate for this address, and refuse connections without TLS.
async fn encrypt(server: &PgPool, address: &str) -> Certificate {
    let make = format!(
        "COPY (SELECT 1) TO PROGRAM 'cat >/dev/null; openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=scoop \
         -addext subjectAltName=IP:{address} -addext basicConstraints=critical,CA:FALSE \
         -keyout server.key -out server.crt'"
    );
    let only_encrypted = "COPY (SELECT 'local all all trust' UNION ALL SELECT 'hostssl all all all trust') TO PROGRAM \
                          'cat >pg_hba.conf'";
    for statement in [&*make, only_encrypted, "ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()"] {
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(server).await.expect(statement);
    }
    let text: String =
        sqlx::query_scalar("SELECT pg_read_file('server.crt')").fetch_one(server).await.unwrap();
    let certificate = Certificate(std::env::temp_dir().join(format!("scoop_{}.crt", uuid::Uuid::now_v7())));
    std::fs::write(&certificate.0, text).unwrap();
    certificate
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_requires_tls_is_reached_by_the_parameters_of_the_url() {
    let address = address();
    let embedded = Embedded::builder().setting("listen_addresses", &*address).start().await.unwrap();
    let server = PgPool::connect_with(embedded.connect_options()).await.unwrap();
    scoop::migration::migrate(&server).await.unwrap();
    let certificate = encrypt(&server, &address).await;
    let certificate = certificate.0.to_str().unwrap();
    let runs = async |parameters: &str, variables: &[(&str, &str)]| {
        let mut command = program(&["runs"]);
        command.env("DATABASE_URL", format!("postgres://postgres@{address}:5432/postgres{parameters}"));
        command.envs(variables.iter().copied());
        ran(command, &mut vec![]).await
    };
    eventually("the server has read its settings", async || runs("?sslmode=require", &[]).await.code == 0)
        .await;
    let root = format!("&sslrootcert={certificate}");
    for parameters in
        ["", "?sslmode=prefer", &format!("?sslmode=verify-ca{root}"), &format!("?sslmode=verify-full{root}")]
    {
        let ran = runs(parameters, &[]).await;
        assert_eq!(ran.code, 0, "{parameters}: {ran:?}");
    }
    let ran = runs("", &[("PGSSLMODE", "verify-full"), ("PGSSLROOTCERT", certificate)]).await;
    assert_eq!(ran.code, 0, "{ran:?}");

    let refused = runs("?sslmode=disable", &[]).await;
    assert!(refused.code != 0 && refused.stderr.contains("no encryption"), "{refused:?}");
    let unknown = runs("?sslmode=verify-full", &[]).await;
    assert!(unknown.code != 0 && unknown.stderr.contains("certificate"), "{unknown:?}");
}

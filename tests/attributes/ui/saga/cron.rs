#![allow(unused)]
include!("../orders.rs");

mod cron_field_out_of_range {
    use super::*;

    #[derive(Default)]
    struct Report;

    #[saga(cron = "0 25 * * *")]
    #[subscribes(Tick)]
    impl Report {
        #[step]
        async fn write(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
            Ok(())
        }
    }
}

mod cron_is_no_expression {
    use super::*;

    #[derive(Default)]
    struct Report;

    #[saga(cron = "every day")]
    #[subscribes(Tick)]
    impl Report {
        #[step]
        async fn write(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
            Ok(())
        }
    }
}

mod cron_never_due {
    use super::*;

    #[derive(Default)]
    struct Report;

    #[saga(cron = "0 0 30 2 *")]
    #[subscribes(Tick)]
    impl Report {
        #[step]
        async fn write(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
            Ok(())
        }
    }
}

fn main() {}

use scoop::prelude::*;

#[derive(Default)]
struct Report;

#[saga]
#[subscribes(Tick)]
impl Report {
    #[step]
    async fn write(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
        Ok(())
    }
}

fn main() {}

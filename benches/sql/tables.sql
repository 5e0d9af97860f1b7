-- The user's table that the measured steps write to.
CREATE TABLE public.entry (
    id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    saga bigint NOT NULL,
    step int NOT NULL
);

-- The entities of steps that decide without commands.
CREATE TABLE public.stock (
    product bigint PRIMARY KEY,
    version bigint NOT NULL,
    units   bigint NOT NULL
);

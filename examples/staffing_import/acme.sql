-- What Acme had before: a staffing agency of its own, with its own names, words, money and times.

create schema acme;

create table acme.people (
  person_no integer primary key,
  firm      text not null,             -- 'acme' lends, all others are customers
  job       text not null,             -- boss, foreman, hand
  full_name text not null,
  mail      text
);

create table acme.customers (
  firm       text primary key,
  title      text not null,
  stripe_id  text,                     -- cus_…
  stripe_pm  text,                     -- pm_…
  insured_to date not null
);

create table acme.sites (
  site_no   integer primary key,
  firm      text not null references acme.customers,
  street    text not null,
  zone      text not null
);

create table acme.assignments (
  code      text primary key,
  site_no   integer not null references acme.sites,
  person_no integer not null references acme.people,
  foreman   integer references acme.people,
  state     text not null,             -- offered, running, over
  first_day date not null,
  last_day  date not null,
  hourly    numeric not null,          -- dollars
  paid_thru date                       -- a Sunday: the last day that the customer was charged for
);

create table acme.turns (
  turn_no    integer primary key,
  code       text not null references acme.assignments,
  begins     timestamp not null,       -- by the clock on the wall of the site
  ends       timestamp not null,
  state      text not null,            -- planned, done, called off
  charged_by text,                     -- pi_… and
  charge     text,                     -- ch_…, where Stripe has the customer's money, or
  by_invoice boolean not null default false  -- the customer has paid by a bank transfer, and Acme its worker
);

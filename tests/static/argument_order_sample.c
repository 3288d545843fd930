/* SPDX-License-Identifier: Apache-2.0 */
/* The sample for argument_order.py: two calls read `error` before or after it is set, and two calls do not. */
void check(int status, void* error);
int load(int key, void** error);
int close_it(void** error);

void sample(void) {
  void* error = 0;
  check(load(1, &error), error);
  check(close_it(&error), error);
  check(load(1, &error), &error);
  const int status = load(1, &error);
  check(status, error);
}

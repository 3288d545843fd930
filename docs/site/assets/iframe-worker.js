// SPDX-License-Identifier: Apache-2.0
// The search runs in a Worker, which browsers refuse to pages opened from the disk (file://). There it runs in a hidden
// frame instead, which has the same messages.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.inner = frame.contentWindow
      this.inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", {data}))
      const script = this.inner.document.createElement("script")
      script.src = url
      this.loaded = new Promise((done) => script.addEventListener("load", done))
      this.inner.document.body.append(script)
    }
    postMessage(data) {
      this.loaded.then(() => this.inner.dispatchEvent(new MessageEvent("message", {data})))
    }
  }
}

/** Types of client.js, the client of slatewise for browsers. */

export type ItemId = number | string;

export interface SlateItem {
  id: ItemId;
  title: string;
  categories: string[];
  probability: number | null;
  deviation: number | null;
  diversity_gain: number;
  reason: string;
  because: ItemId | null;
  because_title: string | null;
  distance: number | null;
}

export interface Slate {
  slate_id: string;
  user: string;
  number: number;
  policy: string;
  variety: number | null;
  items: SlateItem[];
  unmet: { rule: string; number: number; reason: string }[];
}

/** What a request for a slate may say; see the page on serving. */
export interface SlateOptions {
  k?: number;
  diversity?: number;
  candidates?: ItemId[];
  exclude?: ItemId[];
  categories?: string[];
  policy?: string;
  replaces?: string;
  request_id?: string;
  scenario?: string;
  preview?: boolean;
  filter?: string;
  boost?: { where: string; factor: number }[];
  pin?: { item: ItemId; place: number }[];
  at_most?: { n: number; per: string }[];
  at_least?: { n: number; where: string }[];
  min_probability?: number;
  exclude_owned?: boolean;
}

/** What somebody did with a slate; `final: false` says that more will follow. */
export interface Reaction {
  clicked?: ItemId[];
  retracted?: ItemId[];
  seen?: ItemId[] | number;
  values?: [ItemId, number][];
  disliked?: ItemId[];
  event_id?: string;
  final?: boolean;
  user?: string;
}

export interface EventOptions {
  value?: number;
  at?: number;
  event_id?: string;
}

export type FeedbackEvent = Reaction & { slate_id: string };
export type ItemEvent = EventOptions & { user: string; item: ItemId; kind: string };
export type Wish = EventOptions & { user: string; category: string; kind: "more" | "less" };
export type Retraction = { user: string; retracts: string; kind: "retract"; event_id?: string };
export type AnyEvent = FeedbackEvent | ItemEvent | Wish | Retraction;

/** A response that says no. */
export class Problem extends Error {
  readonly status: number;
  readonly detail: string;
  readonly requestId?: string;
  /** Milliseconds that the service asks to wait. */
  readonly wait: number | null;
  /** Whether the same request may succeed later. */
  readonly passing: boolean;
}

/** No response at all. */
export class Unreachable extends Error {
  readonly passing: true;
}

/** An event that the service did not take, or that could not be sent. */
export interface Refused {
  problem: Error;
  slateId?: string;
}

/** Where events are kept until they are acknowledged; the browser's localStorage if nothing is given. */
export interface Storage {
  get(name: string): string | null;
  set(name: string, text: string): void;
  remove(name: string): void;
  names(): string[];
}

export interface ClientOptions {
  url?: string;
  key?: () => string | null;
  onUnauthorized?: (refused: string | null) => Promise<void>;
  storage?: Storage;
  timeout?: number;
}

/** Calls the service; dispatches "lost" when it does not respond, and "back" when it does again. */
export class Client extends EventTarget {
  constructor(options?: ClientOptions);
  slate(user: string, options?: SlateOptions): Promise<Slate>;
  feedback(slateId: string, reaction?: Reaction): Promise<Refused[]>;
  event(user: string, item: ItemId, kind: string, options?: EventOptions): Promise<Refused[]>;
  wish(user: string, category: string, kind: "more" | "less", options?: EventOptions): Promise<Refused[]>;
  retract(user: string, eventId: string): Promise<Refused[]>;
  ask(method: string, path: string, body?: unknown): Promise<any>;
  askPatiently(method: string, path: string, body?: unknown): Promise<any>;
  tryNow(): void;
  put<E extends AnyEvent>(event: E): E & { event_id: string };
  waiting(): number;
  clear(): void;
  send(): Promise<Refused[]>;
  sendAtOnce(event: AnyEvent): void;
}

/** Watch elements and call `onSeen` with each that was on screen for a second; returns a function that stops it. */
export function watchCards(cards: Element[], onSeen: (card: Element) => void): () => void;
